package payment_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

// TestKafkaAwayForLongerThanAnyBackoffCostsNoCallbackAndNoEvent: Kafka dies, 500 callbacks arrive and are answered while it is
// away, and it stays away until the relay has gone through its longest pause.
func TestKafkaAwayForLongerThanAnyBackoffCostsNoCallbackAndNoEvent(t *testing.T) {
	t.Parallel()
	const callbacks = 500
	const longest = 5 * time.Second // pause of a relay that finds no broker; its backoff of a row is set below it
	broker := testkit.Kafka(t, event.Topic)
	s := newStack(t, service.Env{"KAFKA_BROKERS": broker.Brokers(), "OUTBOX_RETRY_CAP": "1s"})
	s.start(payment.Relay)
	numbers := make([]string, callbacks)
	for i := range numbers {
		numbers[i] = s.newOrder()
	}
	s.allSent()
	broker.Kill()

	var senders errgroup.Group
	senders.SetLimit(16)
	for _, no := range numbers {
		body := encode(t, notice("payment.succeeded", no, "trade-"+no))
		h := s.signed("w-"+no, body)
		senders.Go(func() error {
			a, err := trySend("POST", s.url+"/callbacks/payment", h, body)
			if err == nil && (a.status != http.StatusOK || string(a.body) != string(success)) {
				err = fmt.Errorf("order %s: status %d: %s", no, a.status, a.body)
			}
			return err
		})
	}
	require.NoError(t, senders.Wait())
	require.Equal(t, callbacks, s.count("select count(*) from t_outbox_event where status <> 'SENT'"), "Kafka is away")
	testkit.Eventually(t, 90*time.Second, func() error {
		if s.count("select count(*) from t_outbox_event where status <> 'SENT' and created_at > now() - $1::interval", (longest+time.Second).String()) > 0 {
			return fmt.Errorf("not away for long enough")
		}
		return nil
	})
	require.Zero(t, s.count("select count(*) from t_outbox_event where status = 'DEAD'"))

	broker.Restart()
	s.allSent()
	require.Zero(t, s.count("select count(*) from t_outbox_event where status = 'DEAD'"))
	paid := map[string]bool{}
	for _, r := range testkit.ReadTopic(t, broker.Brokers(), event.Topic) {
		e, err := event.Decode(r)
		require.NoError(t, err)
		if e.Type == event.PaymentSucceeded {
			paid[e.AggregateID] = true
		}
	}
	require.Len(t, paid, callbacks)
}

// allSent waits until the outbox holds nothing back.
func (s *stack) allSent() {
	s.t.Helper()
	testkit.Eventually(s.t, 90*time.Second, func() error {
		if left := s.count("select count(*) from t_outbox_event where status <> 'SENT'"); left > 0 {
			return fmt.Errorf("%d events are not sent", left)
		}
		return nil
	})
}
