package payment_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

// instances are n APIs on one database.
func instances(t *testing.T, n int) []*stack {
	t.Helper()
	all := []*stack{newStack(t)}
	for len(all) < n {
		other := *all[0]
		other.url, other.ops = other.start(payment.API)
		all = append(all, &other)
	}
	return all
}

// insist sends again while the answer is that the outcome is unknown, as a provider does: on a slow machine a crowd of
// copies may take longer than a callback waits.
func insist(method, url string, header http.Header, body []byte) (a answer) {
	for begun := time.Now(); time.Since(begun) < soon; {
		var err error
		if a, err = trySend(method, url, header.Clone(), body); err == nil && a.status != http.StatusServiceUnavailable {
			break
		}
	}
	return a
}

// TestFiftyCopiesAtOncePayOnce: half of them go to another instance, which shares nothing but the database.
func TestFiftyCopiesAtOncePayOnce(t *testing.T) {
	t.Parallel()
	apis := instances(t, 2)
	s := apis[0]
	const orders, copies = 8, 50
	numbers := make([]string, orders)
	answers := make([][copies]answer, orders)
	var wg sync.WaitGroup
	for i := range orders {
		numbers[i] = s.newOrder()
		body := encode(t, notice("payment.succeeded", numbers[i], fmt.Sprint("trade-", i)))
		h := s.signed(fmt.Sprint("w-", i), body)
		for j := range copies {
			wg.Go(func() {
				answers[i][j] = insist("POST", apis[j%2].url+"/callbacks/payment", h, body)
			})
		}
	}
	wg.Wait()
	for i, no := range numbers {
		for _, a := range answers[i] {
			require.Equal(t, http.StatusOK, a.status, "%s", a.body)
			require.Equal(t, success, a.body)
		}
		o := s.get(no)
		require.Equal(t, "PAID", o.Status)
		require.EqualValues(t, 2, o.Version)
		require.Empty(t, o.Incidents)
		require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
	}
	require.Equal(t, orders, s.count("select count(*) from t_callback_receipt"))
	require.Equal(t, orders, s.count("select count(*) from t_payment"))
}

// TestOneTradeUnderManyWebhookIDsPaysOnce: here every copy has its own receipt, so only the order's row decides.
func TestOneTradeUnderManyWebhookIDsPaysOnce(t *testing.T) {
	t.Parallel()
	apis := instances(t, 2)
	s := apis[0]
	no := s.newOrder()
	body := encode(t, notice("payment.succeeded", no, "trade-1"))
	var wg sync.WaitGroup
	answers := make([]answer, 40)
	for i := range answers {
		h := s.signed(fmt.Sprint("w-", i), body)
		wg.Go(func() { answers[i] = insist("POST", apis[i%2].url+"/callbacks/payment", h, body) })
	}
	wg.Wait()
	for _, a := range answers {
		require.Equal(t, string(success), string(a.body))
	}
	require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
	require.Empty(t, s.get(no).Incidents)
	require.Equal(t, len(answers), s.count("select count(*) from t_callback_receipt"))
}

// TestOneTradeForTwoOrdersAtOncePaysOneOfThem: the other one gets an incident, and nobody an error.
func TestOneTradeForTwoOrdersAtOncePaysOneOfThem(t *testing.T) {
	t.Parallel()
	apis := instances(t, 2)
	s := apis[0]
	for round := range 15 {
		trade := fmt.Sprint("trade-", round)
		numbers := [2]string{s.newOrder(), s.newOrder()}
		var answers [2]answer
		var wg sync.WaitGroup
		for i, no := range numbers {
			body := encode(t, notice("payment.succeeded", no, trade))
			h := s.signed(uuid.NewString(), body)
			wg.Go(func() { answers[i] = insist("POST", apis[i].url+"/callbacks/payment", h, body) })
		}
		wg.Wait()
		require.Equal(t, string(success), string(answers[0].body))
		require.Equal(t, string(success), string(answers[1].body))
		paid, other := s.get(numbers[0]), s.get(numbers[1])
		if paid.Status != "PAID" {
			paid, other = other, paid
		}
		require.Equal(t, "PAID", paid.Status)
		require.Empty(t, paid.Incidents)
		require.Equal(t, "CREATED", other.Status)
		require.Len(t, other.Incidents, 1)
		require.Equal(t, "trade_of_other_order", other.Incidents[0].Kind)
	}
}

// TestCancelRacingWithSuccessEndsLegal: whoever is first, the order's history is one of two, and no money is forgotten.
func TestCancelRacingWithSuccessEndsLegal(t *testing.T) {
	t.Parallel()
	apis := instances(t, 2)
	s := apis[0]
	const orders = 200
	numbers := make([]string, orders)
	for i := range numbers {
		numbers[i] = s.newOrder()
	}
	var wg sync.WaitGroup
	turns := make(chan struct{}, 8)
	for _, no := range numbers {
		body := encode(t, notice("payment.succeeded", no, "trade-"+no))
		h := s.signed("w-"+no, body)
		steps := []func(){
			func() { insist("POST", apis[0].url+"/callbacks/payment", h, body) },
			func() { insist("POST", apis[1].url+"/orders/"+no+"/cancel", nil, nil) },
		}
		rand.Shuffle(2, func(a, b int) { steps[a], steps[b] = steps[b], steps[a] })
		for _, step := range steps {
			turns <- struct{}{}
			wg.Go(func() { step(); <-turns })
		}
	}
	wg.Wait()
	seen := map[string]int{}
	for _, no := range numbers {
		o := s.get(no)
		require.Equal(t, "CANCELED", o.Status)
		require.Len(t, o.Incidents, 1)
		events := s.events(no)
		switch o.Incidents[0].Kind {
		case "refund_due":
			require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded, 3 OrderCanceled", events)
			require.NotNil(t, o.Payment)
		case "paid_after_close":
			require.Equal(t, "1 OrderCreated, 2 OrderCanceled", events)
			require.Nil(t, o.Payment)
		default:
			t.Fatalf("incident %s", o.Incidents[0].Kind)
		}
		seen[o.Incidents[0].Kind]++
	}
	t.Logf("who was first: %v", seen)
	require.Len(t, seen, 2, "both must have won sometimes, or nothing raced")
}

// TestOrderIsShownAsItWasAtOneMoment: it is paid while its parts are being read.
func TestOrderIsShownAsItWasAtOneMoment(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	payer, err := s.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = payer.Rollback(context.Background()) }()
	exec := func(sql string, args ...any) {
		_, err := payer.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec("lock table t_payment in access exclusive mode")
	shown := make(chan order, 1)
	go func() {
		a, _ := trySend("GET", s.url+"/orders/"+no, nil, nil)
		var o order
		_ = json.Unmarshal(a.body, &o)
		shown <- o
	}()
	s.waiting(1) // the order is read, its payment not yet
	exec("update t_order set status = 'PAID', version = 2, paid_at = now() where order_no = $1", no)
	exec("insert into t_payment (trade_no, order_no, amount, currency, paid_at) values ('t', $1, 1999, 'EUR', now())", no)
	require.NoError(t, payer.Commit(t.Context()))
	o := <-shown
	require.Equal(t, "CREATED", o.Status)
	require.Nil(t, o.Payment)
	require.NotNil(t, s.get(no).Payment)
}

// TestSmallPoolAnswersABurst: each callback needs one connection at a time, so three connections are enough for all.
func TestSmallPoolAnswersABurst(t *testing.T) {
	t.Parallel()
	s := newStack(t, service.Env{"DATABASE_POOL": "3"})
	const orders, each = 10, 10
	var wg sync.WaitGroup
	answers := make(chan answer, orders*each)
	for i := range orders {
		no := s.newOrder()
		for j := range each { // half repetitions, half other webhook ids of the same trade
			body := encode(t, notice("payment.succeeded", no, fmt.Sprint("trade-", i)))
			h := s.signed(fmt.Sprint("w-", i, "-", j/2), body)
			wg.Go(func() {
				a, _ := trySend("POST", s.url+"/callbacks/payment", h, body)
				answers <- a
			})
		}
	}
	wg.Wait()
	close(answers)
	for a := range answers {
		require.Equal(t, string(success), string(a.body))
	}
	require.Equal(t, orders, s.count("select count(*) from t_outbox_event where event_type = 'PaymentSucceeded'"))
	s.idle()
}

// idle waits until no connection of the API is inside a transaction.
func (s *stack) idle() {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		rows, err := s.db.Query(s.t.Context(), "select state || ': ' || query from pg_stat_activity where datname = current_database() and application_name = 'payment' and state <> 'idle'")
		if err != nil {
			return err
		}
		var busy []string
		for rows.Next() {
			var one string
			if err := rows.Scan(&one); err != nil {
				return err
			}
			busy = append(busy, one)
		}
		if len(busy) > 0 {
			return fmt.Errorf("still busy: %s", strings.Join(busy, "; "))
		}
		return rows.Err()
	})
}
