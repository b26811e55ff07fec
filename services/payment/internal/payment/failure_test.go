package payment_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

// sabotage makes the database do something at one step of a transaction: at the moment when a row is written to table,
// or, with atCommit, when the transaction that wrote it commits. repair ends it.
func (s *stack) sabotage(table, when, do string) (repair func()) {
	s.t.Helper()
	create := "create trigger sabotage before insert or update on " + table
	if when == atCommit {
		create = "create constraint trigger sabotage after insert or update on " + table + " deferrable initially deferred"
	}
	s.exec("create or replace function sabotage() returns trigger language plpgsql as $$ begin " + do + " return new; end $$")
	s.exec(create + " for each row execute function sabotage()")
	return func() { s.exec("drop trigger sabotage on " + table) }
}

const (
	atWrite  = "write"
	atCommit = "commit"
)

func (s *stack) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

// steps are all moments of the one transaction at which it can fail.
var steps = []struct{ table, when string }{
	{"t_callback_receipt", atWrite}, {"t_order", atWrite}, {"t_payment", atWrite}, {"t_outbox_event", atWrite},
	{"t_callback_receipt", atCommit}, {"t_outbox_event", atCommit},
}

// TestCallbackThatFailsAtAnyStepLeavesNothingAndSucceedsLater is about every window between BEGIN and COMMIT, with an
// error of the statement and with the connection's death.
func TestCallbackThatFailsAtAnyStepLeavesNothingAndSucceedsLater(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for how, do := range map[string]string{
		"the statement fails": "raise exception 'sabotage';",
		"the connection dies": "perform pg_terminate_backend(pg_backend_pid());",
	} {
		for i, step := range steps {
			no := s.newOrder()
			id, body := "w-"+no, encode(t, notice("payment.succeeded", no, "trade-"+no))
			before := s.tables()
			repair := s.sabotage(step.table, step.when, do)
			for range 2 {
				a := s.callback(id, body)
				require.GreaterOrEqual(t, a.status, 500, "%s at %v: %s", how, step, a.body)
				require.NotContains(t, string(a.body), "sabotage")
				require.Equal(t, before, s.tables(), "%s at step %d, %v", how, i, step)
			}
			repair()
			a := s.callback(id, body)
			require.Equal(t, success, a.body, "%s at %v", how, step)
			require.Equal(t, "PAID", s.get(no).Status)
			require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
		}
	}
}

// TestDeadlockAndSerializationFailureAreTriedAgain: the counter is a sequence, which a rollback does not take back.
func TestDeadlockAndSerializationFailureAreTriedAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for _, code := range []string{"40P01", "40001"} {
		for _, step := range steps {
			no := s.newOrder()
			s.exec("drop sequence if exists tries")
			s.exec("create sequence tries")
			repair := s.sabotage(step.table, step.when, "if nextval('tries') <= 2 then raise exception 'try again' using errcode = '"+code+"'; end if;")
			a := s.callback("w-"+no, encode(t, notice("payment.succeeded", no, "trade-"+no)))
			repair()
			require.Equal(t, http.StatusOK, a.status, "%s at %v: %s", code, step, a.body)
			require.Equal(t, success, a.body)
			require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
			require.Empty(t, s.get(no).Incidents)
		}
	}
	no := s.newOrder()
	repair := s.sabotage("t_outbox_event", atWrite, "raise exception 'always' using errcode = '40001';")
	a := s.callback("w-"+no, encode(t, notice("payment.succeeded", no, "trade-"+no)))
	repair()
	require.Equal(t, http.StatusServiceUnavailable, a.status, "the tries are bounded")
	require.Equal(t, "CREATED", s.get(no).Status)
}

// lock 4711 is where the database waits for the test.
const waitForTest = "perform pg_advisory_xact_lock_shared(4711);"

// hold takes the lock and returns what lets it go.
func (s *stack) hold() (release func()) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.dbURL)
	require.NoError(s.t, err)
	_, err = conn.Exec(s.t.Context(), "select pg_advisory_lock(4711)")
	require.NoError(s.t, err)
	return sync.OnceFunc(func() { _ = conn.Close(s.t.Context()) })
}

// waiting waits until n connections of the API wait for a lock.
func (s *stack) waiting(n int) {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		found := 0
		err := s.db.QueryRow(s.t.Context(),
			"select count(*) from pg_stat_activity where datname = current_database() and application_name = 'payment' and wait_event_type = 'Lock'").Scan(&found)
		if err == nil && found < n {
			err = fmt.Errorf("%d of %d connections wait for a lock", found, n)
		}
		return err
	})
}

// throughProxy starts another API whose way to the database can be cut.
func (s *stack) throughProxy() (*stack, *testkit.Link) {
	s.t.Helper()
	address, err := url.Parse(s.dbURL)
	require.NoError(s.t, err)
	link := testkit.Proxy(s.t, address.Host)
	address.Host = link.Addr()
	cut := *s
	cut.env = service.Env{}
	for name, value := range s.env {
		cut.env[name] = value
	}
	cut.env["DATABASE_URL"] = address.String()
	cut.url, cut.ops = cut.start(payment.API)
	testkit.Eventually(s.t, soon, func() error { // from then on nobody but the test uses its connections
		if !strings.Contains(cut.metrics(), `setting_rule_broken{rule="rights"} 1`) {
			return errors.New("it has not checked its settings yet")
		}
		return nil
	})
	return &cut, link
}

// TestCommitWhoseAnswerIsLostIsFoundByTheRepetition: COMMIT is under way when the connection breaks, and it succeeds.
func TestCommitWhoseAnswerIsLostIsFoundByTheRepetition(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	cut, link := s.throughProxy()
	repair := s.sabotage("t_outbox_event", atCommit, waitForTest)
	defer repair()
	for range 5 {
		no := s.newOrder()
		id, body := "w-"+no, encode(t, notice("payment.succeeded", no, "trade-"+no))
		release := s.hold()
		lost := make(chan answer, 1)
		h := s.signed(id, body)
		go func() {
			a, _ := trySend("POST", cut.url+"/callbacks/payment", h, body)
			lost <- a
		}()
		s.waiting(1)
		link.Cut()
		require.Equal(t, http.StatusServiceUnavailable, (<-lost).status)
		release()
		testkit.Eventually(t, soon, func() error {
			if o := s.get(no); o.Status != "PAID" {
				return fmt.Errorf("the order is %s", o.Status)
			}
			return nil
		})
		link.Restore()
		committed := s.tables()
		require.Equal(t, success, cut.repeated(id, body).body)
		require.Equal(t, committed, s.tables(), "the repetition does nothing again")
		require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
	}
}

// repeated sends a callback, as the provider does, until the outcome is known: each connection of the pool that was cut
// may cost one more repetition.
func (s *stack) repeated(id string, body []byte) (a answer) {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		if a = s.callback(id, body); a.status == http.StatusServiceUnavailable {
			return fmt.Errorf("%d: %s", a.status, a.body)
		}
		return nil
	})
	return a
}

// TestConnectionsCutAtRandomLoseAndDoubleNothing: every callback is sent until it is answered with success.
func TestConnectionsCutAtRandomLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	cut, link := s.throughProxy()
	const orders = 60
	numbers := make([]string, orders)
	for i := range numbers {
		numbers[i] = s.newOrder()
	}
	paid := make(chan struct{})
	var failed atomic.Int64
	for _, no := range numbers {
		body := encode(t, notice("payment.succeeded", no, "trade-"+no))
		h := s.signed("w-"+no, body)
		go func() {
			for {
				a, err := trySend("POST", cut.url+"/callbacks/payment", h.Clone(), body)
				if err == nil && a.status == http.StatusOK {
					paid <- struct{}{}
					return
				}
				failed.Add(1)
			}
		}()
	}
	for range numbers { // each success cuts all the others
		<-paid
		link.Cut()
		link.Restore()
	}
	t.Logf("%d attempts failed", failed.Load())
	require.NotZero(t, failed.Load(), "nothing was cut")
	for _, no := range numbers {
		o := s.get(no)
		require.Equal(t, "PAID", o.Status)
		require.EqualValues(t, 2, o.Version)
		require.Empty(t, o.Incidents)
		require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
	}
	require.Equal(t, orders, s.count("select count(*) from t_payment"))
	s.idle()
}

// TestClientThatHangsUpDoesNotCancelTheCommit: it leaves while the transaction waits for the order's row.
func TestClientThatHangsUpDoesNotCancelTheCommit(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	body := encode(t, notice("payment.succeeded", no, "trade-1"))
	repair := s.sabotage("t_outbox_event", atWrite, waitForTest)
	defer repair()
	release := s.hold()
	defer release()
	conn := s.dial(s.signed("w", body), body)
	s.waiting(1)
	require.NoError(t, conn.Close())
	release()
	testkit.Eventually(t, soon, func() error {
		if got := s.events(no); got != "1 OrderCreated, 2 PaymentSucceeded" {
			return fmt.Errorf("events: %s", got)
		}
		return nil
	})
	require.Equal(t, "PAID", s.get(no).Status)
	s.idle()
}

// TestHangingUpAtAnyMomentLeavesNoHalfPayment closes the socket at once, so that the server notices anywhere.
func TestHangingUpAtAnyMomentLeavesNoHalfPayment(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	const orders = 100
	for i := range orders {
		no := s.newOrder()
		body := encode(t, notice("payment.succeeded", no, "trade-"+no))
		conn := s.dial(s.signed("w-"+no, body), body)
		if i%2 == 0 {
			_, _ = bufio.NewReader(conn).Peek(1) // until the answer begins
		}
		require.NoError(t, conn.Close())
	}
	s.idle()
	require.Equal(t, 0, s.count(`select count(*) from t_order o where (o.status = 'PAID') <>
		((select count(*) from t_outbox_event e where e.aggregate_id = o.order_no and e.event_type = 'PaymentSucceeded') = 1)`))
	require.GreaterOrEqual(t, s.count("select count(*) from t_order where status = 'PAID'"), orders/2)
}

// dial sends a callback over a connection of its own and reads nothing.
func (s *stack) dial(h http.Header, body []byte) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	var request bytes.Buffer
	req, err := http.NewRequest(http.MethodPost, s.url+"/callbacks/payment", bytes.NewReader(body))
	require.NoError(s.t, err)
	req.Header = h
	require.NoError(s.t, req.Write(&request))
	_, err = conn.Write(request.Bytes())
	require.NoError(s.t, err)
	return conn
}

// TestCopyKilledInsideItsTransactionLetsTheOtherWin: two instances, the first one's connection dies in the middle.
func TestCopyKilledInsideItsTransactionLetsTheOtherWin(t *testing.T) {
	t.Parallel()
	apis := instances(t, 2)
	s := apis[0]
	no := s.newOrder()
	body := encode(t, notice("payment.succeeded", no, "trade-1"))
	repair := s.sabotage("t_outbox_event", atWrite, waitForTest)
	defer repair()
	release := s.hold()
	defer release()
	h := s.signed("w", body)
	answers := make(chan answer, 2)
	for i := range 2 {
		go func() {
			a, _ := trySend("POST", apis[i].url+"/callbacks/payment", h.Clone(), body)
			answers <- a
		}()
		s.waiting(i + 1)
	}
	s.exec("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'payment' and wait_event = 'advisory' and datname = current_database()")
	require.Equal(t, http.StatusServiceUnavailable, (<-answers).status)
	release()
	require.Equal(t, success, (<-answers).body)
	require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
	require.Equal(t, success, s.callback("w", body).body, "the killed copy is sent again")
}

// TestTradeTakenBetweenLookAndInsertIsJudgedAgain: the second order's callback sees the trade free, and then it is not.
func TestTradeTakenBetweenLookAndInsertIsJudgedAgain(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	first, second := s.newOrder(), s.newOrder()
	defer s.sabotage("t_outbox_event", atWrite, "if new.aggregate_id = '"+first+"' then "+waitForTest+" end if;")()
	release := s.hold()
	defer release()
	answers := make(chan answer, 2)
	for i, no := range []string{first, second} {
		body := encode(t, notice("payment.succeeded", no, "trade-1"))
		h := s.signed("w-"+no, body)
		go func() {
			a, _ := trySend("POST", s.url+"/callbacks/payment", h, body)
			answers <- a
		}()
		s.waiting(i + 1) // the first for the test, the second for the first
	}
	release()
	require.Equal(t, string(success), string((<-answers).body))
	require.Equal(t, string(success), string((<-answers).body))
	require.Equal(t, "PAID", s.get(first).Status)
	o := s.get(second)
	require.Equal(t, "CREATED", o.Status)
	require.Len(t, o.Incidents, 1)
	require.Equal(t, "trade_of_other_order", o.Incidents[0].Kind)
}

// TestWriterThatIgnoresTheLockIsNotOverwritten: somebody changes the order under the callback's feet.
func TestWriterThatIgnoresTheLockIsNotOverwritten(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	body := encode(t, notice("payment.succeeded", no, "trade-1"))
	repair := s.sabotage("t_callback_receipt", atWrite, "update t_order set status = 'CLOSED', version = 2;")
	before := s.tables()
	require.Equal(t, http.StatusInternalServerError, s.callback("w", body).status)
	require.Equal(t, before, s.tables(), "the version in the condition has noticed it")
	repair()
	require.Equal(t, success, s.callback("w", body).body)
}

// TestLockedOrderMakesNobodyElseWait: somebody sits on one order's row; copies of its callback share one connection.
func TestLockedOrderMakesNobodyElseWait(t *testing.T) {
	t.Parallel()
	s := newStack(t, service.Env{"DATABASE_POOL": "4"})
	locked, free := s.newOrder(), s.newOrder()
	conn, err := pgx.Connect(t.Context(), s.dbURL)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "begin")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "select 1 from t_order where order_no = $1 for update", locked)
	require.NoError(t, err)
	body := encode(t, notice("payment.succeeded", locked, "trade-1"))
	h := s.signed("w", body)
	var wg sync.WaitGroup
	answers := make([]answer, 20)
	for i := range answers {
		wg.Go(func() { answers[i], _ = trySend("POST", s.url+"/callbacks/payment", h.Clone(), body) })
	}
	s.waiting(1)
	s.pay(free, "trade-2")
	require.Equal(t, "PAID", s.get(free).Status)
	require.Equal(t, "CREATED", s.get(locked).Status, "reading does not wait either")
	require.NoError(t, conn.Close(t.Context()))
	wg.Wait()
	for _, a := range answers {
		require.Equal(t, string(success), string(a.body))
	}
}

// TestCallbackWaitsForNothingButPostgres: the broker is dead and the relay is running against it.
func TestCallbackWaitsForNothingButPostgres(t *testing.T) {
	t.Parallel()
	broker := testkit.Kafka(t, event.Topic)
	s := newStack(t, service.Env{"KAFKA_BROKERS": broker.Brokers(), "OUTBOX_RETRY_CAP": "200ms"})
	s.start(payment.Relay)
	broker.Kill()
	fastest := soon
	for range 50 {
		no := s.newOrder()
		body := encode(t, notice("payment.succeeded", no, "trade-"+no))
		began := time.Now()
		a := s.callback("w-"+no, body)
		fastest = min(fastest, time.Since(began))
		require.Equal(t, success, a.body)
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
	}
	t.Logf("the fastest callback took %v", fastest)
	require.Less(t, fastest, time.Second) // far below any broker's time-out; the others may have waited for this machine

	broker.Restart()
	testkit.Eventually(t, soon, func() error {
		if left := s.count("select count(*) from t_outbox_event where status <> 'SENT'"); left > 0 {
			return fmt.Errorf("%d events are not sent", left)
		}
		return nil
	})
}

// TestDatabaseThatIsAwayIsAnUnknownOutcome: 503 and not ready, then all is well again without a restart.
func TestDatabaseThatIsAwayIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	cut, link := s.throughProxy()
	no := s.newOrder()
	link.Cut()
	body := encode(t, notice("payment.succeeded", no, "trade-1"))
	a := cut.callback("w", body)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Error(t, cut.ops.GetJSON(t.Context(), "/readyz", nil, nil))
	link.Restore()
	require.Equal(t, success, cut.repeated("w", body).body)
	testkit.Eventually(t, soon, func() error { return cut.ops.GetJSON(t.Context(), "/readyz", nil, nil) })
}
