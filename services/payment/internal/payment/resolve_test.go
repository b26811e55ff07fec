package payment_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/ops"
)

type incident struct {
	ID         int64      `json:"id"`
	Kind       string     `json:"kind"`
	OrderNo    string     `json:"order_no"`
	State      string     `json:"state"`
	ResolvedAt *time.Time `json:"resolved_at"`
}

var (
	anna = audit.By{Actor: "anna", Reason: "refunded by the bank, ticket 7"}
	bob  = audit.By{Actor: "bob", Reason: "refunded in the shop"}
)

// newIncident leaves one that is open, and a second one that must stay so.
func (s *stack) newIncident() (no string, id int64) {
	s.t.Helper()
	for range 2 {
		no = s.newOrder()
		s.pay(no, "trade-"+no)
		s.cancel(no)
	}
	require.NoError(s.t, s.db.QueryRow(s.t.Context(), "select id from t_incident where order_no = $1", no).Scan(&id))
	return no, id
}

func (s *stack) resolve(id any, query string, by audit.By) (i incident, err error) {
	return i, s.ops.PostJSON(s.t.Context(), fmt.Sprintf("/ops/incidents/%v/resolve%s", id, query), by, &i)
}

// audit is who has done what to an incident, as it is shown.
func (s *stack) audit(id int64) (incident, []audit.Entry) {
	s.t.Helper()
	var shown struct {
		Incident incident
		Audit    []audit.Entry
	}
	require.NoError(s.t, s.ops.GetJSON(s.t.Context(), "/ops/incidents/"+strconv.FormatInt(id, 10), nil, &shown))
	return shown.Incident, shown.Audit
}

func TestResolvedIncidentSaysByWhomAndWhyAndItsOrderStaysAsItWas(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no, id := s.newIncident()
	before, events := s.get(no), s.events(no)
	open, acts := s.audit(id)
	require.Equal(t, incident{ID: id, Kind: "refund_due", OrderNo: no, State: "OPEN"}, open)
	require.Empty(t, acts)

	would, err := s.resolve(id, "?dry_run=true", anna)
	require.NoError(t, err)
	require.Equal(t, "RESOLVED", would.State)
	untouched, acts := s.audit(id)
	require.Equal(t, open, untouched, "it was a dry run")
	require.Empty(t, acts)

	resolved, err := s.resolve(id, "", anna)
	require.NoError(t, err)
	require.Equal(t, "RESOLVED", resolved.State)
	require.NotNil(t, resolved.ResolvedAt)
	shown, acts := s.audit(id)
	require.Equal(t, resolved, shown)
	require.Len(t, acts, 1)
	require.Equal(t, audit.Entry{At: acts[0].At, Actor: anna.Actor, Verb: "resolve", Reason: anna.Reason, Detail: "refund_due of order " + no}, acts[0])
	require.Equal(t, 1, s.count("select count(*) from t_incident where state = 'OPEN'"), "the other one")

	after := s.get(no)
	require.Equal(t, "RESOLVED", after.Incidents[0].State)
	after.Incidents[0].State = "OPEN"
	require.Equal(t, before, after)
	require.Equal(t, events, s.events(no))
}

func TestResolvedAgainItIsTheSameAnswerAndOneRowAndForAnotherPersonAConflict(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	_, id := s.newIncident()
	first, err := s.resolve(id, "", anna)
	require.NoError(t, err)
	for _, query := range []string{"", "?dry_run=true"} {
		again, err := s.resolve(id, query, anna)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	for _, other := range []audit.By{bob, {Actor: anna.Actor, Reason: bob.Reason}, {Actor: bob.Actor, Reason: anna.Reason}} {
		_, err = s.resolve(id, "", other)
		requireStatus(t, http.StatusConflict, err)
		require.ErrorContains(t, err, "resolved already")
	}
	shown, acts := s.audit(id)
	require.Equal(t, first, shown)
	require.Len(t, acts, 1)

	s.exec("update t_incident set state = 'RESOLVED', resolved_at = now() where state = 'OPEN'") // by hand, without a word
	_, err = s.resolve(s.count("select min(id) from t_incident where id <> $1", id), "", anna)
	requireStatus(t, http.StatusConflict, err)
}

// TestOfPeopleWhoResolveAnIncidentAtOnceOneDoes: all of them have asked before the first one has committed.
func TestOfPeopleWhoResolveAnIncidentAtOnceOneDoes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	_, id := s.newIncident()
	s.env["DATABASE_URL"] += "&lock_timeout=0" // they wait for the test
	s.url, s.ops = s.start(payment.API)
	s.ops.HTTP = client
	defer s.sabotage("t_audit", atWrite, waitForTest)()
	release := s.hold()
	defer release()
	people := []audit.By{anna, bob, anna, bob}
	resolved := make([]bool, len(people))
	var asking errgroup.Group
	for n, person := range people {
		asking.Go(func() error {
			_, err := s.resolve(id, "", person)
			var refused *ops.StatusError
			if resolved[n] = err == nil; errors.As(err, &refused) && refused.Status == http.StatusConflict {
				return nil
			}
			return err
		})
	}
	s.waiting(len(people))
	release()
	require.NoError(t, asking.Wait())
	_, acts := s.audit(id)
	require.Len(t, acts, 1)
	for n, person := range people {
		require.Equal(t, person.Actor == acts[0].Actor, resolved[n], "%s, who did it was %s", person.Actor, acts[0].Actor)
	}
}

func TestIncidentIsResolvedOnlyByAPersonWithAReasonAndTheToken(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	_, id := s.newIncident()
	for _, nobody := range []audit.By{{}, {Actor: "anna"}, {Reason: "refunded"}} {
		_, err := s.resolve(id, "", nobody)
		requireStatus(t, http.StatusBadRequest, err)
	}
	for _, none := range []any{0, 1 << 40, "x", "%00", "99999999999999999999"} {
		_, err := s.resolve(none, "", anna)
		requireStatus(t, http.StatusNotFound, err)
		requireStatus(t, http.StatusNotFound, s.ops.GetJSON(t.Context(), fmt.Sprintf("/ops/incidents/%v", none), nil, nil))
	}
	s.ops.Token = "guess"
	_, err := s.resolve(id, "", anna)
	requireStatus(t, http.StatusUnauthorized, err)
	require.Zero(t, s.count("select count(*) from t_incident where state = 'RESOLVED'"))
	require.Zero(t, s.count("select count(*) from t_audit"))
}

// TestTroubleThatIsReportedAgainAfterItWasResolvedStaysResolved: the provider repeats itself for days.
func TestTroubleThatIsReportedAgainAfterItWasResolvedStaysResolved(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	short := func(trade string) []byte {
		return encode(t, notice("payment.succeeded", no, trade, func(data map[string]any) { data["amount"] = 1 }))
	}
	require.Equal(t, success, s.callback("w-1", short("trade-1")).body)
	_, err := s.resolve(s.count("select id from t_incident"), "", anna)
	require.NoError(t, err)
	require.Equal(t, success, s.callback("w-2", short("trade-1")).body)
	require.Equal(t, 1, s.count("select count(*) from t_incident where state = 'RESOLVED'"))
	require.Zero(t, s.count("select count(*) from t_incident where state = 'OPEN'"))
	require.Equal(t, success, s.callback("w-3", short("trade-2")).body) // other money
	require.Equal(t, 1, s.count("select count(*) from t_incident where state = 'OPEN'"))
}
