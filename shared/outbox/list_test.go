package outbox

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/testkit"
)

func (s *stage) list(query string) (page Page, status int, body string) {
	s.t.Helper()
	w := httptest.NewRecorder()
	List(s.db, slog.New(testkit.Logs())).ServeHTTP(w, httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, "/ops/outbox?"+query, nil))
	body = w.Body.String()
	if w.Code == http.StatusOK {
		require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &page))
	}
	return page, w.Code, body
}

func TestOperatorsSeeWhatIsNotSentInPagesAndNoContents(t *testing.T) {
	t.Parallel()
	s := appendStage(t)
	empty, status, _ := s.list("")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]int64{Pending: 0, Sending: 0, Retry: 0, Dead: 0}, empty.Counts)
	require.Zero(t, empty.OldestAgeSeconds)

	s.append(created("O-1", 1), created("O-2", 1), created("O-3", 1), created("O-1", 2))
	require.NoError(t, s.db.Exec(`update t_outbox_event set status = 'SENT', sent_at = now(), broker_partition = 1, broker_offset = 7 where aggregate_id = 'O-2'`).Error)
	first, _, body := s.list("limit=2")
	require.Len(t, first.Rows, 2)
	require.EqualValues(t, 3, first.Counts[Pending])
	require.NotContains(t, body, "amount")
	rest, _, _ := s.list("limit=2&after=" + first.Next)
	require.Len(t, rest.Rows, 1)
	require.Empty(t, rest.Next)
	require.Equal(t, "O-1", rest.Rows[0].OrderNo)

	byOrder, _, _ := s.list("order_no=O-2")
	require.Len(t, byOrder.Rows, 1)
	require.EqualValues(t, 7, *byOrder.Rows[0].BrokerOffset)
	for _, bad := range []string{"limit=0", "limit=x", "status=NONE", "status=SENT", "after=x"} {
		_, status, _ := s.list(bad)
		require.Equal(t, http.StatusBadRequest, status, bad)
	}
}

// TestARowThatCannotBeReadIsToldInTheLogWithoutItsContents takes the constraint away that keeps such a row out.
func TestARowThatCannotBeReadIsToldInTheLogWithoutItsContents(t *testing.T) {
	t.Parallel()
	s := appendStage(t)
	s.append(created("O-1", 1), created("O-2", 1))
	require.NoError(t, s.db.Exec(`alter table t_outbox_event drop constraint t_outbox_event_times`).Error)
	require.NoError(t, s.db.Exec(`update t_outbox_event set created_at = 'infinity', last_error_message = 'call +31600000001' where aggregate_id = 'O-2'`).Error)
	logs, token := testkit.Logs(), "outbox-test-ops-token"
	o := ops.NewServer(token, prometheus.NewRegistry())
	Mount(o, s.db, slog.New(logs))
	require.NoError(t, s.db.Exec(`update t_outbox_event set sent_at = 'infinity', status = 'SENT', broker_partition = 1 where aggregate_id = 'O-2'`).Error)
	var id string
	require.NoError(t, s.db.Raw(`select event_id from t_outbox_event where aggregate_id = 'O-2'`).Scan(&id).Error)
	asked := []string{"/ops/outbox?order_no=O-2", "/ops/outbox/" + id, "/ops/outbox/" + id + "/record"}
	for i, path := range asked {
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		request.Header.Set("Authorization", "Bearer "+token)
		o.ServeHTTP(answer, request)
		require.Equal(t, http.StatusServiceUnavailable, answer.Code, path)
		require.Contains(t, answer.Body.String(), "see the log")

		told := logs.Find("the outbox could not be read")
		require.Len(t, told, i+1)
		require.Equal(t, "ERROR", told[i]["level"])
		require.Equal(t, request.URL.Path, told[i]["asked"])
		require.Contains(t, told[i]["error"], "_at", "the column: where to look")
		for _, contents := range []string{"amount", "user_id", "+31600000001"} {
			require.NotContains(t, logs.Text()+answer.Body.String(), contents)
		}
	}
}

func TestFactsCarryTheHashThatConsumersCompute(t *testing.T) {
	t.Parallel()
	s := appendStage(t)
	one, two := created("O-1", 1), created("O-1", 2)
	s.append(one, two, created("O-2", 1))
	got, err := Facts(t.Context(), s.db, event.AggregateOrder, []string{"O-1"})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Len(t, got["O-1"], 2)
	require.Equal(t, one.Hash(), got["O-1"][0].Hash)
	require.Equal(t, two.ID, got["O-1"][1].EventID)
	require.Nil(t, got["O-1"][0].Offset)
}

func TestListOfWhatIsNotSentReadsNoneOfTheSentRows(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fill("A", 20_000, 100)
	s.exec("update t_outbox_event set status = 'SENT', sent_at = now(), broker_partition = 0")
	s.fill("B", 20, 20)
	s.exec("vacuum analyze t_outbox_event")
	for _, status := range []string{"", " and status = 'DEAD'"} {
		found, err := s.sql.Query(t.Context(), "explain select * from t_outbox_event where "+listUnsent+status+" order by created_at, event_id limit 51")
		require.NoError(t, err)
		plan, err := pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(t, err)
		require.Contains(t, strings.Join(plan, "\n"), "Index Scan")
		require.NotContains(t, strings.Join(plan, "\n"), "Seq Scan")
	}
}
