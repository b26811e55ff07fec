package supervise

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/testkit"
)

// soon is much longer than anything here takes on a machine that has the time.
const soon = time.Minute

// shell is a set of one process that runs a shell script.
func shell(t *testing.T, script string, restart bool) (*Supervisor, *Process, *testkit.Output) {
	r := &testkit.Output{}
	s := &Supervisor{}
	require.NoError(t, s.Watch(r, restart))
	p := s.Add(Spec{
		Name: "sh", Ports: []int{1}, Log: filepath.Join(t.TempDir(), "sh.log"),
		Command: func(context.Context) (*exec.Cmd, error) { return exec.Command("sh", "-c", script), nil },
		Ready:   func(context.Context) error { return nil },
	})
	t.Cleanup(func() { require.NoError(t, s.Shutdown(nil)) })
	return s, p, r
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestAKilledProcessIsGoneWithItsChildrenWhenKillReturns(t *testing.T) {
	t.Parallel()
	_, p, r := shell(t, "sleep 1000 & echo $!; wait", false)
	require.NoError(t, p.Start(t.Context()))
	var child string
	require.Eventually(t, func() bool { child = strings.TrimSpace(p.Tail(1)); return child != "" }, soon, 10*time.Millisecond)
	pid := p.alive()
	require.NoError(t, p.Kill())
	require.False(t, alive(pid))
	require.Eventually(t, func() bool { return exec.Command("kill", "-0", child).Run() != nil }, soon, 10*time.Millisecond)
	require.Equal(t, Killed, p.Status(t.Context()).State)
	require.Empty(t, r.String(), "an end that was asked for is no news")
	require.ErrorContains(t, p.Kill(), "does not run")
	require.NoError(t, p.Start(t.Context()), "a killed process can be started again")
}

func TestADeathIsToldOnceWithTheLastLinesOfThisRunOnly(t *testing.T) {
	t.Parallel()
	_, p, r := shell(t, "echo first; echo second; exit 3", false)
	require.NoError(t, p.Start(t.Context()))
	require.Eventually(t, func() bool { return strings.Contains(r.String(), "second") }, soon, 10*time.Millisecond)
	require.Contains(t, r.String(), "exit status 3")
	require.Equal(t, Died, p.Status(t.Context()).State)
	require.NoError(t, p.Start(t.Context()))
	require.Eventually(t, func() bool { return strings.Count(r.String(), "ended by itself") == 2 }, soon, 10*time.Millisecond)
	require.Equal(t, 2, strings.Count(r.String(), "first"), "the second report must not repeat the first run's lines")
}

func TestWithRestartADeadProcessComesBackAndAStoppedOneDoesNot(t *testing.T) {
	t.Parallel()
	_, p, _ := shell(t, "sleep 1000", true)
	require.NoError(t, p.Start(t.Context()))
	first := p.alive()
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL)) // not through us: by itself
	require.Eventually(t, func() bool { pid := p.alive(); return pid != 0 && pid != first }, soon, 10*time.Millisecond)
	require.NoError(t, p.StopInOrder())
	require.Never(t, func() bool { return p.alive() != 0 }, restartDelay+500*time.Millisecond, 50*time.Millisecond)
}

func TestAPausedProcessCanBeStoppedInOrder(t *testing.T) {
	t.Parallel()
	_, p, _ := shell(t, `trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.05; done`, false)
	require.NoError(t, p.Start(t.Context()))
	require.Eventually(t, func() bool { return strings.Contains(p.Tail(1), "up") }, soon, 10*time.Millisecond)
	require.ErrorContains(t, p.Resume(), "not paused")
	require.NoError(t, p.Pause())
	require.Equal(t, Paused, p.Status(t.Context()).State)
	require.NoError(t, p.StopInOrder())
	require.Contains(t, p.Tail(1), "bye")
	require.Equal(t, Stopped, p.Status(t.Context()).State)
}

func TestWaitingForADeadProcessEndsWithItsLastWords(t *testing.T) {
	t.Parallel()
	_, p, _ := shell(t, "echo no such database >&2; exit 1", false)
	p.Ready = func(context.Context) error { return errors.New("not yet") }
	require.NoError(t, p.Start(t.Context()))
	require.ErrorContains(t, p.AwaitReady(t.Context()), "no such database")
}

func TestTheSocketCarriesTheVerbsAlsoFromADeepDirectory(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("d/", 60))} {
		s, p, _ := shell(t, "sleep 1000", false)
		require.NoError(t, exec.Command("mkdir", "-p", dir).Run())
		client := Client{Dir: dir}
		_, err := client.Statuses(t.Context())
		require.ErrorContains(t, err, "nothing runs on")
		stop, err := s.Control(dir)
		require.NoError(t, err)
		t.Cleanup(stop)
		status, err := client.Do(t.Context(), "sh", "start")
		require.NoError(t, err)
		require.Equal(t, p.alive(), status.PID)
		all, err := client.Statuses(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.True(t, all[0].Ready)
		_, err = client.Do(t.Context(), "sh", "start")
		require.ErrorContains(t, err, "runs already")
		_, err = client.Do(t.Context(), "nobody", "kill")
		require.ErrorContains(t, err, "there are: sh")
		_, err = client.Do(t.Context(), "sh", "burn")
		require.ErrorContains(t, err, "burn")
	}
}
