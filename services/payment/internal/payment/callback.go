package payment

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/webhook"
)

// commitDeadline bounds a transaction of the API, waiting for a connection and for locks included.
const commitDeadline = 10 * time.Second

// callback takes what the payment provider says.
//
// FLOW 1/9: cheap refusals first and the database last. The signature is checked over the raw bytes before anything is
// decoded. The provider gets its answer as soon as the facts are committed; who else must hear of them is the relay's
// business.
func (s *server) callback(c echo.Context) error {
	r := c.Request()
	body, err := readBody(c.Response().Writer, r)
	if err != nil {
		s.metrics.callback("refused_body")
		return err
	}
	if err := s.secrets.Verify(r.Header, body); err != nil {
		s.metrics.refused(err)
		// One answer for every reason: telling them apart would help a forger.
		return &problem{http.StatusUnauthorized, "unauthorized", "the callback is not signed with a secret of ours"}
	}
	n, err := decodeNotice(r.Header.Get(webhook.HeaderID), body)
	if err != nil {
		s.metrics.callback("refused_content")
		return invalid(err)
	}
	out, err := s.confirmOnce(r.Context(), n)
	if errors.Is(err, errOtherBody) {
		s.metrics.callback("refused_reuse")
		return &problem{http.StatusConflict, "webhook-id-reused", "this webhook id came before with another body"}
	}
	if err != nil {
		s.metrics.callback("error")
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, []byte(out.receipt.Answer))
}

// confirmOnce lets copies that arrive at the same moment share one transaction: a burst on one order takes one
// connection, not the pool. What makes copies harmless is the receipt's key; other replicas have their own bursts.
func (s *server) confirmOnce(ctx context.Context, n notice) (outcome, error) {
	shared, err, _ := s.copies.Do(n.WebhookID+" "+n.BodyHash, func() (any, error) {
		// The client may hang up at any time; that must not cancel a COMMIT on its way.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitDeadline)
		defer cancel()
		out, err := s.confirm(ctx, n)
		if postgres.IsUnique(err, "t_payment_trade_no") {
			// Another order took the trade between our look and our insert. Now the look will see it.
			out, err = s.confirm(ctx, n)
		}
		if err == nil {
			s.settled(ctx, n, out)
		}
		return out, err
	})
	if err != nil {
		return outcome{}, err
	}
	return shared.(outcome), nil
}

// settled tells the relay, the metrics and the log what was committed. Nothing here can fail the callback.
func (s *server) settled(ctx context.Context, n notice, out outcome) {
	if out.event {
		s.wake()
	}
	seen := string(out.receipt.Verdict)
	if out.repeated {
		seen = "repeated"
	}
	s.metrics.callback(seen)
	log := s.log.With("verdict", seen, "type", n.Type, "order_no", n.OrderNo)
	if out.incident != nil {
		s.metrics.incident(out.incident.Kind)
		log.WarnContext(ctx, "callback does not fit its order", "incident", out.incident.Kind, "incident_id", out.incident.ID)
		return
	}
	log.InfoContext(ctx, "callback settled")
}
