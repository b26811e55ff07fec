package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

func (s *stage) operator() func(path, body string) int {
	s.t.Helper()
	require.NoError(s.t, postgres.Migrate(s.t.Context(), s.url, audit.Migrations))
	o := ops.NewServer("token-of-the-test", prometheus.NewRegistry())
	Mount(o, s.db, s.relay().c.Log)
	return func(path, body string) int {
		s.t.Helper()
		r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, path, bytes.NewBufferString(body))
		r.Header.Set("Authorization", "Bearer token-of-the-test")
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		return w.Code
	}
}

const because = `{"actor": "anna", "reason": "the limit was raised"}`

func TestReleasedRowGoesOutAndItsTailFollowsInOrder(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.operator()
	s.fill("B", 300, 1)
	s.exec("update t_outbox_event set payload = repeat('x', 1100000) where aggregate_version = 1")
	s.run(func(c *Config) { c.Batch = 50 })
	s.eventually(299, "held_by = 'B-0'")

	require.Equal(t, http.StatusBadRequest, post("/ops/outbox/B-0/release", `{"actor": "anna"}`))
	require.Equal(t, http.StatusNotFound, post("/ops/outbox/none/release", because))
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-1/release", because))
	s.exec("update t_outbox_event set payload = 'small' where aggregate_version = 1")
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-1/release?dry_run=true", because))
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/release?dry_run=true", because))
	require.Equal(t, 1, s.count("event_id = 'B-0' and status = 'DEAD'"), "a dry run changes nothing")
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/release", because))
	s.eventually(300, "status = 'SENT'")
	s.requireOrdered(300)
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-0/release", because))

	var acts int
	require.NoError(t, s.sql.QueryRow(t.Context(), "select count(*) from t_audit where verb = 'release' and object = 'outbox/B-0' and actor = 'anna'").Scan(&acts))
	require.Equal(t, 1, acts, "refused acts leave no trace")
}

func TestSkippedRowStaysAndItsTailPasses(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.operator()
	s.fill("B", 300, 1)
	s.exec("update t_outbox_event set payload = repeat('x', 1100000) where aggregate_version = 1")
	s.run(func(c *Config) { c.Batch = 50 })
	s.eventually(299, "held_by = 'B-0'")
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/skip", because))
	s.eventually(299, "status = 'SENT'")
	require.Equal(t, 1, s.count("status = 'DEAD' and skipped"))
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-0/skip", because))
	require.Equal(t, http.StatusConflict, post("/ops/outbox/B-0/release", because))
}

// skipped is a key whose first event was skipped while its tail stands still.
func (s *stage) skipped() {
	s.t.Helper()
	s.fill("B", 10, 1)
	s.exec("update t_outbox_event set status = 'DEAD', last_error_code = 'message_too_large' where event_id = 'B-0'")
	s.exec("update t_outbox_event set held_by = 'B-0' where event_id <> 'B-0'")
}

func TestSkipThatWasAMistakeIsUndoneWhileNothingHasPassed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.operator()
	s.skipped()
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/skip", because))
	require.Equal(t, 9, s.count("held_by is null and status = 'PENDING'"))
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/release?dry_run=true", because))
	require.Equal(t, 1, s.count("skipped"), "a dry run changes nothing")
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/release", because))
	require.Equal(t, 1, s.count("event_id = 'B-0' and status = 'RETRY' and not skipped"))
	require.Equal(t, 9, s.count("held_by = 'B-0'"), "no claim that looks now can take one of them first")
	s.run()
	s.eventually(10, "status = 'SENT'")
	s.requireOrdered(10)
	var acts string
	require.NoError(t, s.sql.QueryRow(t.Context(), "select string_agg(verb, ' ' order by id) from t_audit where object = 'outbox/B-0'").Scan(&acts))
	require.Equal(t, "skip release", acts)
}

func TestSkippedEventThatWasPassedIsReleasedOnlyByWhoWantsItLate(t *testing.T) {
	t.Parallel()
	for name, passing := range map[string]string{
		"sent":      "update t_outbox_event set status = 'SENT', sent_at = now(), broker_partition = 1, broker_offset = 1 where event_id = 'B-1'",
		"under way": "update t_outbox_event set status = 'SENDING', owner_token = 'x', lease_until = now() + interval '1 hour' where event_id = 'B-1'",
		"archived":  "with gone as (delete from t_outbox_event where event_id = 'B-1' returning *) insert into t_outbox_archive (" + archivedColumns + ") select event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, destination, message_key, payload, headers, 1, 1, created_at, now() from gone",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			post := s.operator()
			s.skipped()
			require.NoError(t, s.db.Transaction(func(tx *gorm.DB) error { return ensurePartition(tx, time.Now().UTC().Format("2006-01")) }))
			require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/skip", because))
			s.exec(passing)
			require.Equal(t, http.StatusConflict, post("/ops/outbox/B-0/release", because))
			require.Equal(t, 1, s.count("skipped"), "and nothing is changed")
			require.Zero(t, s.count("held_by is not null"))
			require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/release?late=true", because))
			s.exec("update t_outbox_event set status = 'RETRY', last_error_code = 'x', owner_token = null, lease_until = null where event_id = 'B-1' and status = 'SENDING'")
			s.run()
			s.eventually(0, "status <> 'SENT'")
			require.Equal(t, 1, s.published()["B-0"], "twice rather than never, and never silently")
		})
	}
}

// TestSkipIsNotUndoneUnderAClaimThatTakesTheTail: the claim has the tail's lock and has not committed.
func TestSkipIsNotUndoneUnderAClaimThatTakesTheTail(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.operator()
	s.skipped()
	require.Equal(t, http.StatusOK, post("/ops/outbox/B-0/skip", because))
	claiming, err := s.sql.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = claiming.Rollback(context.Background()) }() // after the commit it does nothing
	_, err = claiming.Exec(t.Context(), "update t_outbox_event set status = 'SENDING', owner_token = 'x', lease_until = now() + interval '1 hour' where event_id = 'B-1'")
	require.NoError(t, err)
	answered := make(chan int, 1)
	go func() { answered <- post("/ops/outbox/B-0/release", because) }()
	testkit.Eventually(t, faultPatience, func() error {
		var waiting int
		err := s.sql.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'test' and wait_event_type = 'Lock'").Scan(&waiting)
		if err == nil && waiting == 0 {
			err = errors.New("the release waits for nobody")
		}
		return err
	})
	require.NoError(t, claiming.Commit(t.Context()))
	require.Equal(t, http.StatusConflict, <-answered)
	require.Equal(t, 1, s.count("skipped"))
}

func TestPausedDestinationIsOpenedByHandAndPausedAgainWhenItStillRefuses(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.operator()
	const path = "/ops/outbox-destinations/order-events/open"
	require.Equal(t, http.StatusNotFound, post(path, because))
	grant := s.kafka.FailProduce(event.Topic, -1, kerr.TopicAuthorizationFailed)
	s.fill("A", 20, 10)
	s.run(func(c *Config) { c.RetryBase, c.RetryCap = time.Hour, time.Hour }) // no probe will come by itself
	s.eventuallyState(event.Topic, "PAUSED kafka_29")
	require.Equal(t, http.StatusBadRequest, post(path, `{"actor": "anna"}`))
	require.Equal(t, http.StatusOK, post(path+"?dry_run=true", because))
	require.Equal(t, "PAUSED kafka_29", s.state(event.Topic), "a dry run changes nothing")

	require.Equal(t, http.StatusOK, post(path, because))
	testkit.Eventually(t, faultPatience, func() error {
		var probes int
		err := s.sql.QueryRow(t.Context(), "select count(*) from t_outbox_destination where state = 'PAUSED' and since > (select max(at) from t_audit where verb = 'open')").Scan(&probes)
		if err == nil && probes == 0 {
			err = errors.New("the relay has not tried it")
		}
		return err
	})
	grant()
	testkit.Eventually(t, faultPatience, func() error { // a circuit breaker of the client may answer once more in Kafka's place
		post(path, because)
		if n := s.count("status = 'SENT'"); n < 20 {
			return fmt.Errorf("%d are sent", n)
		}
		return nil
	})
	s.eventuallyState(event.Topic, "OPEN ")
	s.requireOrdered(20)
	require.Equal(t, http.StatusConflict, post(path, because), "it is open")
	var acts int
	require.NoError(t, s.sql.QueryRow(t.Context(), "select count(*) from t_audit where verb = 'open' and object = 'destination/order-events' and actor = 'anna' and detail like 'paused since%kafka_29'").Scan(&acts))
	require.GreaterOrEqual(t, acts, 2)
}

func TestArchivedEventIsNotSaidToBeNowhere(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.operator() // the audit's table
	s.fill("old", 1, 1)
	s.old("old", 40)
	_, err := Archive(t.Context(), s.db, weeks)
	require.NoError(t, err)
	o := ops.NewServer("token-of-the-test", prometheus.NewRegistry())
	Mount(o, s.db, s.relay().c.Log)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/outbox/old-0", nil)
	r.Header.Set("Authorization", "Bearer token-of-the-test")
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), "no event old-0 in this outbox, or it is archived")
}
