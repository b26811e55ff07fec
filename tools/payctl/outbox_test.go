package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/outbox"
)

func TestDeadEventIsFoundReleasedAndSentWithItsAuditRow(t *testing.T) {
	t.Parallel()
	s := newStack(t, outbox.Migrations)
	s.shop()
	id := s.append("O-1", true)
	s.relay()
	s.eventually(1, "t_outbox_event where status = 'DEAD'")

	code, out, _ := s.payctl("outbox", "list", "--status", "DEAD")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, id)
	require.NotContains(t, out, "xxxx", "no contents")
	release := []string{"outbox", "release", id, "--by", "anna", "--reason", "the event was cut"}

	code, out, _ = s.payctl(release...)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "DEAD → RETRY")
	require.Contains(t, out, "Nothing was changed. Add --yes")
	require.Equal(t, 1, s.count("t_outbox_event where status = 'DEAD'"))
	require.Zero(t, s.count("t_audit"))

	code, _, complain := s.payctl("outbox", "release", id, "--yes")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complain, "--reason")
	code, _, complain = s.payctl("outbox", "release", "none", "--reason", "r", "--yes")
	require.Equal(t, exitNothing, code)
	require.Contains(t, complain, "no event none in shop")

	s.exec("update t_outbox_event set payload = '{}'")
	code, out, complain = s.payctl(append(release, "--yes")...)
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "done: release event "+id)
	s.eventually(1, "t_outbox_event where status = 'SENT'")
	require.Equal(t, 1, s.count("t_audit where verb = 'release' and actor = 'anna' and reason = 'the event was cut' and object = ?", "outbox/"+id))

	code, _, complain = s.payctl(append(release, "--yes")...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, complain, "is SENT")
	var shown found
	s.json(exitOK, &shown, "outbox", "show", id)
	require.Len(t, shown.Audit, 1)
	require.Equal(t, "shop", shown.From)
	code, out, _ = s.payctl("outbox", "show", id)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "the event was cut")
	code, _, complain = s.payctl("outbox", "list")
	require.Equal(t, exitNothing, code, "all are sent")
	require.Contains(t, complain, "no outbox rows (archived ones are not listed) in shop")
}

func TestSeveralEventsAreSkippedAndOneRefusalStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newStack(t, outbox.Migrations)
	s.shop()
	dead, waiting := s.append("O-1", false), s.append("O-2", false)
	s.exec("update t_outbox_event set status = 'DEAD', last_error_code = 'too_large' where event_id = ?", dead)
	var outcomes []changed
	s.json(exitFailed, &outcomes, "outbox", "skip", waiting, dead, "--reason", "the customer knows", "--yes")
	require.Len(t, outcomes, 2)
	require.False(t, outcomes[0].Done)
	require.Contains(t, outcomes[0].Error, "PENDING")
	require.True(t, outcomes[1].Done)
	require.Equal(t, 1, s.count("t_outbox_event where skipped"))
	require.Equal(t, 1, s.count("t_audit where actor <> ''"), "the user of this system")
	code, _, complain := s.payctl("outbox", "skip", waiting, "none", "--reason", "r")
	require.Equal(t, exitFailed, code)
	require.Regexp(t, `\Apayctl: .*PENDING.*\npayctl: there is no event none in shop.*\n\z`, complain)
	code, _, complain = s.payctl("outbox", "skip", "none", "nowhere", "--reason", "r")
	require.Equal(t, exitNothing, code, "as for one alone")
	require.Regexp(t, `\Apayctl: there is no event none .*\npayctl: there is no event nowhere .*\n\z`, complain)
}

func TestListsGoOnOverPagesUpToTheLimitAndDestinationsAreThere(t *testing.T) {
	t.Parallel()
	s := newStack(t, outbox.Migrations)
	s.shop()
	s.env["TWIN_OPS_URL"] = s.env["SHOP_OPS_URL"] // a second replica
	s.exec(`insert into t_outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, destination, message_key, payload, headers)
		select 'E-' || i, 'Order', 'O-' || i, 1, 'OrderCreated', 1, 'order-events', 'O-' || i, '{}', '' from generate_series(1, 250) i`)
	for limit, want := range map[string]int{"7": 7, "220": 220, "1000": 250} {
		var rows []row
		s.json(exitOK, &rows, "outbox", "list", "--limit", limit)
		require.Len(t, rows, want, "and each once, though two processes show it")
	}
	_, out, _ := s.payctl("outbox", "list", "--limit", "7")
	require.Contains(t, out, "there are more")
	s.exec("insert into t_outbox_destination (destination, state, cause, probe_at) values ('order-events', 'PAUSED', 'unknown_topic', now())")
	code, out, _ := s.payctl("destinations")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "unknown_topic")
	code, _, complain := s.payctl("outbox", "list", "--service", "sop")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complain, "shop")
}

func TestMistypedSkipIsUndoneAndAPassedOneNeedsLate(t *testing.T) {
	t.Parallel()
	s := newStack(t, outbox.Migrations)
	s.shop()
	dead := s.append("O-1", false)
	s.exec("update t_outbox_event set status = 'DEAD', last_error_code = 'too_large' where event_id = ?", dead)
	act := func(verb string, more ...string) (int, string, string) {
		return s.payctl(append([]string{"outbox", verb, dead, "--by", "anna", "--reason", "r", "--yes"}, more...)...)
	}
	code, _, complain := act("skip")
	require.Equal(t, exitOK, code, complain)
	code, out, complain := act("release")
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "DEAD → RETRY")
	require.Equal(t, 1, s.count("t_outbox_event where status = 'RETRY' and not skipped"))

	s.exec("update t_outbox_event set status = 'DEAD'")
	act("skip")
	s.exec(`insert into t_outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, destination, message_key, payload, headers,
		status, sent_at, broker_partition) select 'E-2', aggregate_type, aggregate_id, 2, event_type, 1, destination, message_key, '{}', '', 'SENT', now(), 1 from t_outbox_event`)
	code, _, complain = act("release")
	require.Equal(t, exitFailed, code)
	require.Contains(t, complain, "1 later events of its order have passed it")
	code, _, complain = s.payctl("outbox", "release", dead, "--late", "--reason", "r")
	require.Equal(t, exitOK, code, complain)
	require.Equal(t, 1, s.count("t_outbox_event where skipped"), "without --yes nothing is changed")
	code, _, complain = act("release", "--late")
	require.Equal(t, exitOK, code, complain)
	require.Zero(t, s.count("t_outbox_event where skipped"))
	require.Equal(t, 4, s.count("t_audit where object = ?", "outbox/"+dead))
}

func TestPausedDestinationIsOpenedByHandAndShowsByWhom(t *testing.T) {
	t.Parallel()
	s := newStack(t, outbox.Migrations)
	s.shop()
	s.exec("insert into t_outbox_destination (destination, state, cause, probe_at) values ('order-events', 'PAUSED', 'kafka_29', now() + interval '1 hour')")
	open := []string{"destinations", "open", "order-events", "--by", "anna", "--reason", "the rights are back"}
	code, out, complain := s.payctl(open...)
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "PAUSED → OPEN")
	require.Contains(t, out, nothingChanged)
	require.Equal(t, 1, s.count("t_outbox_destination where state = 'PAUSED'"))
	code, _, complain = s.payctl("destinations", "open", "order-events", "--yes")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complain, "--reason")
	code, _, complain = s.payctl(append(open, "--yes")...)
	require.Equal(t, exitOK, code, complain)
	require.Equal(t, 1, s.count("t_outbox_destination where state = 'OPEN' and cause is null"))
	code, _, complain = s.payctl(append(open, "--yes")...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, complain, "open already")
	code, out, _ = s.payctl("destinations", "show", "order-events")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "the rights are back")
	code, _, complain = s.payctl("destinations", "open", "nowhere", "--reason", "r")
	require.Equal(t, exitNothing, code)
	require.Contains(t, complain, "no destination nowhere")
}
