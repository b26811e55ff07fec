package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/deploy/local/internal/supervise"
	"example.com/paycast/shared/testkit"
)

func TestTwoSystemsSideBySideDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	a, b := up(t, t.TempDir()), up(t, t.TempDir())
	for name, value := range a.vars {
		require.NotEqual(t, value, b.vars[name], "both have the same %s", name)
	}
	o, _ := a.paidBy("ada", nil)
	a.requireOneOfEach(o, "ada")
	b.requireAgreement()
	require.Zero(t, b.count("PAYMENT", `SELECT count(*) FROM t_order`))
	require.Zero(t, b.count("POINTS", `SELECT count(*) FROM t_message_consume`))
	b.signal(syscall.SIGINT)
	b.requireNothingLeft()
	o, _ = a.paidBy("bob", nil)
	a.requireOneOfEach(o, "bob")
}

func TestASystemGoesOnWithItsDataAfterCtrlCAndAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := up(t, dir)
	before, _ := first.paidBy("ada", nil)
	first.requireOneOfEach(before, "ada")
	out, err := first.command("up")
	require.Error(t, err)
	require.Contains(t, out, fmt.Sprintf("pid %d", first.cmd.Process.Pid), "the directory's owner is named")

	first.signal(syscall.SIGINT)
	require.Zero(t, first.cmd.ProcessState.ExitCode(), "%s", &first.out)
	first.requireNothingLeft()
	require.NoFileExists(t, filepath.Join(dir, "vars"), "nobody shall take the old addresses for new ones")

	second := up(t, dir)
	for _, name := range []string{"OPS_TOKEN", "WEBHOOK_SECRET", "MERCHANT_ID"} {
		require.Equal(t, first.vars[name], second.vars[name], name)
	}
	second.requireOneOfEach(before, "ada")
	crashed, _ := second.paidBy("bob", nil)
	second.signal(syscall.SIGKILL) // with the event on its way
	second.requireNothingLeft()

	third := up(t, dir)
	third.requireOneOfEach(before, "ada")
	third.requireOneOfEach(crashed, "bob")
	third.requireAgreement()
}

func TestAnExistingPostgresServerWillDo(t *testing.T) {
	t.Parallel()
	server := testkit.Postgres(t)
	s := up(t, t.TempDir(), "--postgres", server)
	o, _ := s.paidBy("ada", nil)
	s.requireOneOfEach(o, "ada")
	s.requireAgreement()
	for _, p := range s.ps() {
		require.NotEqual(t, "postgres", p.Name)
	}
	other := up(t, t.TempDir(), "--postgres", server)
	require.Zero(t, other.count("PAYMENT", `SELECT count(*) FROM t_order`), "two systems share a server and no database")
}

func TestTheVerbsDoWhatTheySayAndPsShowsIt(t *testing.T) {
	t.Parallel()
	s := up(t, t.TempDir())
	state := func(name string) supervise.Status {
		for _, p := range s.ps() {
			if p.Name == name {
				return p
			}
		}
		require.Fail(t, "ps does not show "+name)
		return supervise.Status{}
	}
	s.requireAllReady()
	for _, p := range s.ps() {
		require.NotZero(t, p.PID)
		require.NotEmpty(t, p.Ports)
	}
	for _, name := range []string{"points", "postgres", "kafka", "elasticsearch"} {
		pid := state(name).PID
		s.do("pause", name)
		require.Equal(t, supervise.Paused, state(name).State)
		s.do("resume", name)
		require.Equal(t, pid, state(name).PID)
		s.do("kill", name)
		require.Equal(t, supervise.Killed, state(name).State)
		require.NoDirExists(t, fmt.Sprintf("/proc/%d", pid))
		s.do("start", name)
		s.do("stop", name)
		require.Equal(t, supervise.Stopped, state(name).State)
		s.do("start", name)
	}
	out, err := s.command("kill", "nobody")
	require.Error(t, err)
	require.Contains(t, out, "points")
	s.requireAllReady() // everything recovers from the loss of every part
	o, _ := s.paidBy("ada", nil)
	s.requireOneOfEach(o, "ada")

	require.NoError(t, syscall.Kill(state("search").PID, syscall.SIGKILL)) // not through us: it dies by itself
	require.Eventually(t, func() bool { return strings.Contains(s.out.String(), "search ended by itself (signal: killed)") }, patience, 20*time.Millisecond)
	require.Equal(t, supervise.Died, state("search").State)
}

// requireAllReady waits until ps calls everything ready; it does not wait long for an answer.
func (s *system) requireAllReady() {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		for _, p := range s.ps() {
			assert.True(c, p.Ready, "%+v", p)
		}
	}, patience, 200*time.Millisecond)
}

func TestAPartThatDoesNotComeUpIsNamedWithTheReasonAndNothingStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &system{t: t, dir: dir, vars: map[string]string{"OPS_TOKEN": "none was made"}}
	cmd := exec.Command(binary(t, "paycast-local"), append([]string{"up", "--dir", dir}, parts...)...)
	cmd.Env = append(os.Environ(), "OUTBOX_LEASE=soon")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "relay ended by itself (exit status 2)")
	require.Contains(t, string(out), "OUTBOX_LEASE cannot be read")
	s.requireNothingLeft()
}
