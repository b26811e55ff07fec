package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

// ErrCommitUnknown marks an error that COMMIT itself answered with a broken connection: the transaction may be
// committed or not. Look at the database before acting on it; never take it for a rollback.
var ErrCommitUnknown = errors.New("the outcome of commit is unknown")

// maxTries bounds how often Transaction runs its function.
const maxTries = 5

// InTx reports whether db is a handle inside a transaction, prepared or not.
func InTx(db *gorm.DB) bool {
	_, ok := db.Statement.ConnPool.(gorm.TxCommitter)
	return ok
}

// Transaction runs fn in one transaction and commits it. A serialization failure or a deadlock, also one that COMMIT
// reports, runs the whole fn again, so that it reads afresh: fn must have no effect outside the transaction. The error
// wraps ErrCommitUnknown when the connection broke at COMMIT.
func Transaction(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		done := false // fn returned nil, so an error after it is COMMIT's
		err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			done = false
			if err := fn(tx); err != nil {
				return err
			}
			done = true
			return nil
		})
		switch {
		case err == nil:
			return struct{}{}, nil
		case retryable(err):
			return struct{}{}, err
		case done && !answered(err):
			return struct{}{}, backoff.Permanent(errors.Join(ErrCommitUnknown, err))
		default:
			return struct{}{}, backoff.Permanent(err)
		}
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: 5 * time.Millisecond, Multiplier: 3, RandomizationFactor: 0.5, MaxInterval: 200 * time.Millisecond,
	}), backoff.WithMaxTries(maxTries))
	return err
}

// retryable errors roll the whole transaction back and ask for another try.
func retryable(err error) bool {
	code := Code(err)
	return code == "40001" || code == "40P01"
}

// answered reports whether the server itself said no.
func answered(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg)
}
