package search

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/elastic"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/telemetry"
)

// source is payment, as the owner of all orders.
type source struct{ payment ops.Client }

// askTimeout bounds one question to payment.
const askTimeout = 2 * time.Second

func newSource(opsURL, token string, tracer trace.TracerProvider) source {
	route := func(*http.Request) string { return "/ops/orders/{no}" }
	return source{ops.Client{BaseURL: opsURL, Token: token, HTTP: &http.Client{
		Timeout: askTimeout, Transport: telemetry.Transport(tracer, http.DefaultTransport, route),
	}}}
}

// order is the order as payment has it now.
func (s source) order(ctx context.Context, no string) (d document, err error) {
	if err := s.payment.GetJSON(ctx, "/ops/orders/"+url.PathEscape(no), nil, &d); err != nil {
		return document{}, fmt.Errorf("reading order %s: %w", no, err)
	}
	if d.OrderNo != no || d.Version < 1 {
		return document{}, fmt.Errorf("reading order %s: the answer is another order", no)
	}
	return d, nil
}

// heal brings the document to the order as payment has it now, and returns its version. Between two of its steps it may
// be cut off, and done again: each is safe to repeat.
func (p projection) heal(ctx context.Context, e event.Event) (int64, error) {
	d, err := p.source.order(ctx, e.AggregateID)
	if err != nil {
		return 0, sourceTrouble(err)
	}
	outcome, err := p.put(ctx, d)
	if err != nil {
		return 0, err
	}
	if outcome == elastic.Stale { // newer than what payment said a moment ago; whoever wrote that records it
		return d.Version, nil
	}
	return d.Version, p.raise(p.db.WithContext(ctx), d)
}

// sourceTrouble tells an order that payment does not have, which is this event's trouble, from a payment that cannot be
// asked, which is nobody's.
func sourceTrouble(err error) error {
	var refused *ops.StatusError
	if errors.As(err, &refused) && refused.Kind == "no-such-order" {
		return consumer.Transient(err)
	}
	return consumer.Down(err)
}
