package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestLetterIsSeenReleasedAndHandledWithItsAuditRows(t *testing.T) {
	t.Parallel()
	s := newStack(t, inbox.Migrations)
	mended := s.coupon()
	testkit.Produce(t, s.broker.Brokers(), event.Topic, consumertest.Record(consumertest.Paid("O-1", "ann")), consumertest.Record(consumertest.Paid("O-2", "ann")))
	s.eventually(2, "t_dead_letter where state = 'OPEN'")

	var rows []struct {
		Service  string
		LetterID int64  `json:"letter_id"`
		OrderNo  string `json:"order_no"`
	}
	s.json(exitOK, &rows, "letters", "list", "--order", "O-1")
	require.Len(t, rows, 1)
	require.Equal(t, group, rows[0].Service)
	id := strconv.FormatInt(rows[0].LetterID, 10)

	code, out, _ := s.payctl("letters", "show", id)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "this build cannot")
	require.NotContains(t, out, "user_id", "no contents unless asked for")
	code, _, complain := s.payctl("letters", "show", id, "--contents")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complain, "--reason")
	code, out, complain = s.payctl("letters", "show", id, "--contents", "--by", "anna", "--reason", "ticket 7")
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "user_id")
	require.Equal(t, 1, s.count("t_audit where verb = 'see contents' and actor = 'anna'"))

	release := []string{"letters", "release", id, "--by", "anna", "--reason", "the build is mended"}
	mended.Store(true)
	code, out, _ = s.payctl(release...)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "OPEN → RELEASED")
	require.Equal(t, 2, s.count("t_dead_letter where state = 'OPEN'"))
	require.Equal(t, 1, s.count("t_audit"))
	code, _, complain = s.payctl("letters", "release", "999", "--reason", "r", "--yes")
	require.Equal(t, exitNothing, code)
	require.Contains(t, complain, "no letter 999")

	code, _, complain = s.payctl(append(release, "--yes")...)
	require.Equal(t, exitOK, code, complain)
	s.eventually(1, "t_message_consume where status = 'SUCCESS'")
	require.Equal(t, 1, s.count("t_audit where verb = 'release' and reason = 'the build is mended' and object = ?", "letter/"+id))
	code, _, complain = s.payctl(append(release, "--yes")...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, complain, "closed already")

	erase := []string{"letters", "erase", "ann", "--by", "anna", "--reason", "her request of today"}
	payloads := "t_dead_letter where payload is not null"
	code, out, complain = s.payctl(erase...)
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, nothingChanged)
	require.Regexp(t, group+` +[12] +false`, out)
	require.Equal(t, 2, s.count(payloads))

	s.json(exitOK, &rows, "letters", "list")
	other := strconv.FormatInt(rows[0].LetterID, 10)
	code, _, complain = s.payctl("letters", "discard", other, "--reason", "a test order", "--yes")
	require.Equal(t, exitOK, code, complain)
	code, _, _ = s.payctl("letters", "list")
	require.Equal(t, exitNothing, code)
	code, out, _ = s.payctl("log", "list", "--order", "O-2")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "discarded")
	s.json(exitOK, &rows, "letters", "list", "--state", "ALL")
	require.Len(t, rows, 2)

	code, _, complain = s.payctl(append(erase, "--yes")...)
	require.Equal(t, exitOK, code, complain)
	require.Zero(t, s.count(payloads))
	require.Equal(t, 1, s.count("t_audit where verb = 'erase' and reason = 'her request of today'"))
}

func TestConflictShowsItsSecondBodyAndWhereTheFirstOneStands(t *testing.T) {
	t.Parallel()
	s := newStack(t, inbox.Migrations)
	s.settings = service.Env{"DEAD_LETTER_OWNER": "growth"}
	s.coupon().Store(true)
	first := consumertest.Paid("O-1", "ann")
	second := consumertest.Record(first)
	second.Value = []byte(`{"order_no":"O-1","user_id":"eve"}`)
	testkit.Produce(t, s.broker.Brokers(), event.Topic, consumertest.Record(first), second)
	s.eventually(1, "t_dead_letter where state = 'OPEN'")
	var place struct {
		LetterID          string
		Partition, Offset int64
	}
	require.NoError(t, s.db.Raw(`select (select letter_id from t_dead_letter)::text as letter_id, partition, "offset" from t_message_consume`).Scan(&place).Error)

	code, out, complain := s.payctl("letters", "list")
	require.Equal(t, exitOK, code, complain)
	require.Regexp(t, "conflict .* growth +OPEN", out, "the owner of the configuration")
	code, out, complain = s.payctl("letters", "show", place.LetterID)
	require.Equal(t, exitOK, code, complain)
	for name, value := range map[string]any{"first_hash": first.Hash(), "first_topic": event.Topic, "first_partition": place.Partition, "first_offset": place.Offset} {
		require.Regexp(t, fmt.Sprintf(`(?m)^  %s +%v$`, name, value), out)
	}
	require.NotContains(t, out, "user_id")
	code, out, complain = s.payctl("letters", "show", place.LetterID, "--contents", "--reason", "which of them is true?")
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, string(second.Value))
	code, _, complain = s.payctl("letters", "release", place.LetterID, "--reason", "r", "--yes")
	require.Equal(t, exitFailed, code)
	require.Contains(t, complain, "a conflict is never applied; it can only be discarded")
	code, _, complain = s.payctl("letters", "discard", place.LetterID, "--reason", "forged", "--yes")
	require.Equal(t, exitOK, code, complain)
	require.Equal(t, 1, s.count("t_message_consume where status = 'SUCCESS' and request_hash = ?", first.Hash()))
}

// TestALetterThatIsThereInSeveralServicesIsTakenInNone: of two processes that show the same letter, one is named.
func TestALetterThatIsThereInSeveralServicesIsTakenInNone(t *testing.T) {
	t.Parallel()
	s := &stack{t: t, env: service.Env{}}
	for name, letter := range map[string]string{"NOTIFY": "1", "POINTS": "2", "SEARCH": "3", "TWIN": "1"} {
		answer := fmt.Sprintf(`{"letter": {"letter_id": 1, "order_no": "O-%s"}, "audit": []}`, letter)
		process := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		t.Cleanup(process.Close)
		s.env[name+"_OPS_URL"] = process.URL
	}
	code, _, complain := s.payctl("letters", "release", "1", "--reason", "r", "--yes")
	require.Equal(t, exitUsage, code)
	require.Equal(t, "payctl: letter 1 is there in notify, points, search; choose with --service\n", complain)
	code, out, complain := s.payctl("letters", "show", "1", "--service", "points")
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "O-2")
}
