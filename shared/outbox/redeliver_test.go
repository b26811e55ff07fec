package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/testkit"
)

// redelivery is POST /ops/redeliver of a process that knows these brokers; it gives status and detail.
func (s *stage) redelivery(brokers string) func(query, group string, ids ...string) (int, string) {
	s.t.Helper()
	require.NoError(s.t, postgres.Migrate(s.t.Context(), s.url, audit.Migrations))
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers, ClientID: "redelivery", Log: slog.New(s.logs)})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, pub.Close()) })
	o := ops.NewServer("token-of-the-test", prometheus.NewRegistry())
	Redelivery{DB: s.db, Publisher: pub, Log: slog.New(s.logs)}.Mount(o)
	return func(query, group string, ids ...string) (int, string) {
		s.t.Helper()
		body, err := json.Marshal(map[string]any{"actor": "anna", "reason": "it was lost", "group": group, "event_ids": ids})
		require.NoError(s.t, err)
		r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/ops/redeliver"+query, bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer token-of-the-test")
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		var told ops.ProblemDetails
		require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &told))
		return w.Code, told.Detail
	}
}

func (s *stage) audited() (acts int) {
	s.t.Helper()
	require.NoError(s.t, s.sql.QueryRow(s.t.Context(), "select count(*) from t_audit").Scan(&acts))
	return acts
}

func TestGroupThatIsNotThereIsToldBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.redelivery(s.kafka.Brokers())
	s.fill("A", 1, 1)
	s.old("A", 1)
	for _, group := range []string{"POINTS", "../x", "points ", "-x", strings.Repeat("x", 300)} {
		status, detail := post("", group, "A-0")
		require.Equal(t, http.StatusBadRequest, status, group)
		require.Contains(t, detail, "a group's name")
	}
	for _, query := range []string{"?dry_run=true", ""} {
		status, detail := post(query, "nope", "A-0")
		require.Equal(t, http.StatusConflict, status, query)
		require.Equal(t, "0 of 1 events were sent: Kafka has no topic order-events.redeliver.nope, or this service may not use it", detail)
	}
	require.Zero(t, s.audited(), "what cannot begin leaves nothing")

	// A topic that goes, or rights that end, between the look and the send.
	topic := event.RedeliveryTopic("points")
	require.NoError(t, kafka.EnsureTopics(t.Context(), s.kafka.Brokers(), topic))
	grant := s.kafka.FailProduce(topic, -1, kerr.TopicAuthorizationFailed)
	status, _ := post("", "points", "A-0")
	require.Equal(t, http.StatusConflict, status)
	grant()
	testkit.Eventually(t, soon, func() error { // a circuit breaker of the client may answer once more in Kafka's place
		if status, detail := post("", "points", "A-0"); status != http.StatusOK {
			return fmt.Errorf("%d: %s", status, detail)
		}
		return nil
	})
	require.Len(t, testkit.ReadTopic(t, s.kafka.Brokers(), topic), 1)
}

func TestDryRedeliveryWithoutKafkaSaysSo(t *testing.T) {
	t.Parallel()
	s := setup(t)
	post := s.redelivery(testkit.FreeAddr(t)) // nobody listens there
	s.fill("A", 1, 1)
	s.old("A", 1)
	status, detail := post("?dry_run=true", "points", "A-0")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, detail, "0 of 1 events were sent")
}

// TestEventInBothPlacesIsRedeliveredOnceAndStandsForNoOther: an archived copy that says something else keeps its row where it is.
func TestEventInBothPlacesIsRedeliveredOnceAndStandsForNoOther(t *testing.T) {
	t.Parallel()
	s := setup(t)
	topic := event.RedeliveryTopic("points")
	require.NoError(t, kafka.EnsureTopics(t.Context(), s.kafka.Brokers(), topic))
	post := s.redelivery(s.kafka.Brokers())
	s.fill("A", 1, 1)
	s.old("A", 40)
	require.NoError(t, ensurePartition(s.db, time.Now().AddDate(0, 0, -40).UTC().Format("2006-01")))
	s.exec("insert into t_outbox_archive (" + archivedColumns + ") select " + archivedColumns + " from t_outbox_event")
	s.exec("update t_outbox_archive set payload = 'altered'")
	for _, query := range []string{"?dry_run=true", ""} {
		status, detail := post(query, "points", "A-0", "missing")
		require.Equal(t, http.StatusConflict, status, query)
		require.Contains(t, detail, "1 of 2 events are not in this outbox or its archive")
	}
	status, _ := post("", "points", "A-0")
	require.Equal(t, http.StatusOK, status)
	sent := testkit.ReadTopic(t, s.kafka.Brokers(), topic)
	require.Len(t, sent, 1)
	require.Equal(t, strings.Repeat("x", 200), string(sent[0].Value), "the outbox's bytes are the ones that were sent")
}
