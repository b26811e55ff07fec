package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/replay"
	"example.com/paycast/shared/testkit"
)

// mistake is a command line that must be refused: with which exit code, and with which words for the one who typed it.
type mistake struct {
	line  string // words in it are separated by one blank
	code  int
	words string
}

// refuses types each line, with a reason where there is none, and checks that nothing has been changed by all of them.
func (s *stack) refuses(mistakes []mistake) {
	s.t.Helper()
	before := s.everything()
	for _, m := range mistakes {
		code, out, complain := s.payctl(strings.Split(m.line, " ")...)
		require.Equal(s.t, m.code, code, "%s\n%s%s", m.line, out, complain)
		require.Contains(s.t, complain, m.words, m.line)
	}
	require.Equal(s.t, before, s.everything(), "something is half done")
}

// everything that these verbs could change, as text.
func (s *stack) everything() string {
	s.t.Helper()
	var all string
	require.NoError(s.t, s.db.Raw(`select concat_ws(E'\n', (select string_agg(j::text, '; ' order by job_id) from t_replay_job j),
		(select string_agg(i::text, '; ' order by job_id, position) from t_replay_item i),
		(select string_agg(l::text, '; ' order by letter_id) from t_dead_letter l),
		(select string_agg(c::text, '; ' order by event_id) from t_message_consume c),
		(select string_agg(a::text, '; ' order by id) from t_audit a))`).Scan(&all).Error)
	return all
}

func TestMistakesAboutReplaysAndLettersAreExplainedAndLeaveNothingHalfDone(t *testing.T) {
	t.Parallel()
	s := newStack(t, inbox.Migrations, outbox.Migrations)
	s.shop()
	s.coupon()
	for _, order := range []string{"O-1", "O-2", "O-3"} {
		testkit.Produce(t, s.broker.Brokers(), event.Topic, consumertest.Record(consumertest.Paid(order, "ann")))
	}
	s.eventually(3, "t_dead_letter where state = 'OPEN'")
	letter := func(order string) string {
		var rows []struct {
			LetterID int64 `json:"letter_id"`
		}
		s.json(exitOK, &rows, "letters", "list", "--order", order)
		return strconv.FormatInt(rows[0].LetterID, 10)
	}
	open, closed := letter("O-1"), letter("O-2")
	code, _, complain := s.payctl("letters", "discard", closed, "--reason", "r", "--yes")
	require.Equal(t, exitOK, code, complain)
	plan := func() string {
		var job replay.Job
		s.json(exitOK, &job, "replay", "plan", "--service", group, "--letter", open, "--reason", "r")
		return job.JobID
	}
	planned, canceled := plan(), plan()
	code, _, complain = s.payctl("replay", "cancel", canceled, "--reason", "r", "--yes")
	require.Equal(t, exitOK, code, complain)

	s.refuses([]mistake{
		{"replay plan --service nobody --letter 1 --reason r", exitUsage, "there is no process nobody; the environment knows coupon, shop"},
		{"replay plan --service shop --letter 1 --reason r", exitFailed, "shop has no such operation"},
		{"replay plan --letter 1 --reason r", exitUsage, "--service"},
		{"replay plan --service coupon --letter 1", exitUsage, "--reason"},
		{"replay plan --service coupon --reason r", exitFailed, "choose by letters"},
		{"replay plan --service coupon --class undecodable --reason r", exitFailed, "nothing of this group matches; look at its dead letters"},
		{"replay plan --service coupon --letter x --reason r", exitUsage, "--letter"},
		{"replay plan --service coupon --from yesterday --reason r", exitUsage, "RFC 3339"},
		{"replay plan --service coupon --to 2026-03-01 --reason r", exitUsage, "RFC 3339"},
		{"replay plan --service coupon --from 2026-03-02T00:00:00Z --to 2026-03-01T00:00:00Z --reason r", exitFailed, "from must be before to"},
		{"replay plan --service coupon --letter " + open + " --rate 1001 --reason r", exitFailed, "the rate is 1 to 1000"},
		{"replay plan --service coupon --event E-1 --reason r", exitFailed, "PAYMENT_OPS_URL"},

		{"replay rehearse r-0 --reason r", exitNothing, "there is no replay r-0 in coupon"},
		{"replay rehearse " + planned, exitUsage, "--reason"},
		{"replay run r-0 --yes --reason r", exitNothing, "there is no replay r-0 in coupon"},
		{"replay run " + planned + " --yes", exitUsage, "--reason"},
		{"replay run " + canceled + " --yes --reason r", exitFailed, "it is CANCELED, and run needs PLANNED"},
		{"replay run " + planned + " --people 7 --yes --reason r", exitFailed, "0 of these messages may reach somebody; confirm it with that number"},
		{"replay resume r-0 --yes --reason r", exitNothing, "there is no replay r-0 in coupon"},
		{"replay resume " + planned + " --yes --reason r", exitFailed, "it is PLANNED, and resume needs PAUSED"},
		{"replay pause r-0 --yes --reason r", exitNothing, "there is no replay r-0 in coupon"},
		{"replay pause " + planned + " --yes --reason r", exitFailed, "it is PLANNED, and pause needs RUNNING"},
		{"replay cancel r-0 --yes --reason r", exitNothing, "there is no replay r-0 in coupon"},
		{"replay cancel " + canceled + " --yes --reason r", exitFailed, "it is CANCELED, and cancel needs PLANNED or RUNNING or PAUSED"},
		{"replay status r-0", exitNothing, "there is no replay r-0 in coupon"},
		{"reapply E-1 --service nobody --yes --reason r", exitUsage, "there is no process nobody"},
		{"reapply E-1 --service coupon --yes", exitUsage, "--reason"},
		{"reapply E-1 --service coupon --yes --reason r", exitFailed, "has not seen the event"},
		{"reapply " + consumertest.Paid("O-1", "ann").ID + " --service coupon --yes --reason r", exitFailed, "the event is DEAD in the consume log"},
		{"reapply E-1 --service shop --yes --reason r", exitFailed, "shop has no such operation"},

		{"letters list --service nobody", exitUsage, "there is no process nobody"},
		{"letters list --state CLOSED", exitUsage, "OPEN"},
		{"letters list --order nothing", exitNothing, "no dead letters in coupon"},
		{"letters show 999", exitNothing, "there is no letter 999 in coupon"},
		{"letters show x", exitNothing, "there is no letter x in coupon"},
		{"letters show " + open + " --contents", exitUsage, "--reason"},
		{"letters show 999 --contents --reason r", exitNothing, "there is no letter 999"},
		{"letters release 999 --yes --reason r", exitNothing, "there is no letter 999 in coupon"},
		{"letters release " + open + " --yes", exitUsage, "--reason"},
		{"letters release " + closed + " --yes --reason r", exitFailed, "closed already"},
		{"letters discard 999 --yes --reason r", exitNothing, "there is no letter 999 in coupon"},
		{"letters discard " + open + " --yes", exitUsage, "--reason"},
		{"letters discard " + closed + " --yes --reason r", exitFailed, "closed already"},
		{"letters skip 999 --yes --reason r", exitNothing, "there is no letter 999 in coupon"},
		{"letters skip " + closed + " --yes --reason r", exitFailed, "holds nobody"},
		{"letters erase ann --yes", exitUsage, "--reason"},
		{"letters erase --yes --reason r", exitUsage, "<user>"},
	})

	// Each verb once, so that nobody is forgotten by what follows.
	verbs := []string{
		"replay plan --service coupon --letter " + open + " --reason r", "replay rehearse " + planned + " --reason r",
		"replay run " + planned + " --yes --reason r", "replay resume " + planned + " --yes --reason r", "replay pause " + planned + " --yes --reason r",
		"replay cancel " + planned + " --yes --reason r", "replay status", "replay status " + planned, "reapply E-1 --service coupon --yes --reason r",
		"letters list", "letters show " + open, "letters show " + open + " --contents --reason r", "letters release " + open + " --yes --reason r",
		"letters discard " + open + " --yes --reason r", "letters skip " + open + " --yes --reason r", "letters erase ann --yes --reason r",
	}
	all := func(words string) (mistakes []mistake) {
		for _, line := range verbs {
			mistakes = append(mistakes, mistake{line, exitFailed, words})
		}
		return mistakes
	}
	s.env["OPS_TOKEN"] = ""
	s.refuses(all("refuses the token: OPS_TOKEN in the environment is missing"))
	s.env["OPS_TOKEN"] = "another-systems-token"
	s.refuses(all("refuses the token: OPS_TOKEN in the environment is missing or another system's"))
	s.env["OPS_TOKEN"] = token
	address := s.env["COUPON_OPS_URL"]
	s.env["COUPON_OPS_URL"] = "http://" + testkit.FreeAddr(t)
	s.refuses(all("coupon cannot be asked"))
	s.env["COUPON_OPS_URL"] = address

	// A role that may not write the audit: who did it would not be known, so it is not done.
	s.exec("revoke insert on t_audit from " + roleOf(s))
	var unwritten []mistake
	for _, line := range verbs {
		if !strings.HasPrefix(line, "replay resume") && !strings.HasPrefix(line, "replay pause") && strings.Contains(line, "--reason") && !strings.HasPrefix(line, "reapply") {
			unwritten = append(unwritten, mistake{line, exitFailed, "see the log"})
		}
	}
	require.Len(t, unwritten, 9)
	s.refuses(unwritten)
}

func TestYesAloneIsRefusedWherePeopleWouldReceiveSomething(t *testing.T) {
	t.Parallel()
	s := newStack(t, inbox.Migrations)
	s.people = true
	out := s.planOfTwoMended()
	require.Contains(t, out, "2 of them may reach somebody; a run needs --people 2")
	run := []string{"replay", "run", replayID.FindString(out), "--reason", "r"}
	code, out, complain := s.payctl(run...)
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "confirm with --people 2")
	for _, sure := range [][]string{{"--yes"}, {"--yes", "--people", "1"}, {"--yes", "--people", "3"}} {
		code, _, complain = s.payctl(append(run, sure...)...)
		require.Equal(t, exitFailed, code, sure)
		require.Contains(t, complain, "2 of these messages may reach somebody; confirm it with that number", sure)
	}
	require.Equal(t, 2, s.count("t_dead_letter where state = 'OPEN'"))
	code, out, complain = s.payctl(append(run, "--yes", "--people", "2")...)
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "2/2  DONE")
}
