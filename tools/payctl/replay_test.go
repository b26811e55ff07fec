package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/replay"
	"example.com/paycast/shared/testkit"
)

var replayID = regexp.MustCompile(`r-[0-9a-f]{12}`)

func TestBadBuildIsMendedAndItsLettersReplayed(t *testing.T) {
	t.Parallel()
	s := newStack(t, inbox.Migrations)
	mended := s.coupon()
	for _, order := range strings.Fields("O-01 O-02 O-03 O-04 O-05 O-06 O-07 O-08 O-09 O-10 O-11 O-12 O-13 O-14") {
		testkit.Produce(t, s.broker.Brokers(), event.Topic, consumertest.Record(consumertest.Paid(order, "ann")))
	}
	s.eventually(14, "t_dead_letter where state = 'OPEN'")

	must := func(want int, args ...string) string {
		t.Helper()
		code, out, complain := s.payctl(args...)
		require.Equal(t, want, code, complain)
		t.Logf("$ payctl %s\n%s%s", strings.Join(args, " "), out, complain)
		return out + complain
	}
	why := []string{"--reason", "build 42 cannot handle payments", "--by", "anna"}
	out := must(exitOK, append([]string{"replay", "plan", "--service", group, "--class", "bad_data", "--rate", "20"}, why...)...)
	require.Contains(t, out, "14 messages are frozen")
	require.Contains(t, out, "expected  new 14")
	id := replayID.FindString(out)
	require.Contains(t, must(exitFailed, append([]string{"replay", "rehearse", id}, why...)...), "bad_data 14")
	require.Contains(t, must(exitOK, append([]string{"replay", "run", id}, why...)...), nothingChanged)
	require.Contains(t, must(exitFailed, append([]string{"replay", "run", id, "--yes"}, why...)...), "a dead letter again")
	require.Contains(t, must(exitOK, "replay", "status", id), "stopped itself")

	mended.Store(true)
	why[1] = "build 43 is out"
	require.Contains(t, must(exitOK, append([]string{"replay", "rehearse", id}, why...)...), "applied 13")
	require.Contains(t, must(exitOK, append([]string{"replay", "resume", id, "--yes"}, why...)...), "[##############################] 14/14  DONE")
	out = must(exitOK, "replay", "status", id)
	require.Regexp(t, `(?m)anna +resume +build 43 is out`, out)
	require.Equal(t, 13, s.count("t_message_consume where status = 'SUCCESS'"))

	// The one that the first run has used up is an open letter again, and a plan of its own.
	out = must(exitOK, append([]string{"replay", "plan", "--service", group, "--type", event.PaymentSucceeded, "--class", "bad_data"}, why...)...)
	last := replayID.FindString(out)
	must(exitOK, append([]string{"replay", "run", last, "--yes"}, why...)...)
	require.Equal(t, 14, s.count("t_message_consume where status = 'SUCCESS'"))

	var all []struct {
		Service string
		JobID   string `json:"job_id"`
		State   string
	}
	s.json(exitOK, &all, "replay", "status")
	require.Len(t, all, 2)
	require.Equal(t, "DONE", all[0].State)
	require.Contains(t, must(exitFailed, append([]string{"replay", "cancel", id, "--yes"}, why...)...), "it is DONE")
	require.Contains(t, must(exitNothing, append([]string{"replay", "pause", "r-0", "--yes"}, why...)...), "no replay r-0")
	require.Contains(t, must(exitFailed, append([]string{"reapply", "nothing", "--service", group, "--yes"}, why...)...), "has not seen the event")
}

// planOfTwoMended plans the replay of two letters whose fault is mended, and returns what payctl says of the plan.
func (s *stack) planOfTwoMended() string {
	s.t.Helper()
	mended := s.coupon()
	testkit.Produce(s.t, s.broker.Brokers(), event.Topic, consumertest.Record(consumertest.Paid("O-1", "ann")), consumertest.Record(consumertest.Paid("O-2", "ann")))
	s.eventually(2, "t_dead_letter where state = 'OPEN'")
	mended.Store(true)
	code, out, complain := s.payctl("replay", "plan", "--service", group, "--class", "bad_data", "--reason", "r")
	require.Equal(s.t, exitOK, code, complain)
	return out
}

func TestRehearsalOfAnEffectOutsideSaysWhyNotAndWhatToExpect(t *testing.T) {
	t.Parallel()
	s := newStack(t, inbox.Migrations)
	s.outside = true
	out := s.planOfTwoMended()
	id := replayID.FindString(out)
	code, out, complain := s.payctl("replay", "rehearse", id, "--reason", "r")
	require.Equal(t, exitFailed, code, "whoever goes on only after a rehearsal must not go on")
	require.Contains(t, out, "nothing is rehearsed; the consume log makes expect of 2 messages: new 2")
	require.Contains(t, complain, "outside its database and cannot be rolled back")
	var told replay.Rehearsal
	s.json(exitFailed, &told, "replay", "rehearse", id, "--reason", "r")
	require.Equal(t, map[string]int{"new": 2}, told.Results)
	require.Equal(t, 2, s.count("t_dead_letter where state = 'OPEN'"))
	code, out, complain = s.payctl("replay", "run", id, "--yes", "--reason", "r")
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "2/2  DONE")
}
