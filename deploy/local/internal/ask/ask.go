// Package ask reads back from each part of a running stack what it holds: the outbox row from payment's database, the
// record from the broker, the balance from points, the message from the SMS provider, the document from Elasticsearch.
//
// Promise: an answer comes from the part that it is about and from no other, and nothing is remembered. The package does
// not judge what it reads.
package ask

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/paycast/shared/ops"
)

// Asker asks one stack.
type Asker struct {
	vars    map[string]string
	payment *pgxpool.Pool // the payment service's database, as its owner
}

// New takes the variables of the stack's env file. Close the Asker after use.
func New(ctx context.Context, vars map[string]string) (*Asker, error) {
	pool, err := pgxpool.New(ctx, vars["PAYMENT_DATABASE_URL"])
	if err != nil {
		return nil, fmt.Errorf("opening payment's database: %w", err)
	}
	return &Asker{vars: vars, payment: pool}, nil
}

// Close lets go of the database.
func (a *Asker) Close() { a.payment.Close() }

func (a *Asker) api(name string) ops.Client {
	return ops.Client{BaseURL: a.vars[name+"_URL"], Token: a.vars["OPS_TOKEN"]}
}
