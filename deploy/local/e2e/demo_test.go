package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/testkit"
)

func demo(t *testing.T, flags ...string) (cmd *exec.Cmd, out *testkit.Output, tmp string) {
	t.Helper()
	tmp, out = t.TempDir(), &testkit.Output{}
	cmd = exec.Command(binary(t, "paycast-local"), append(append([]string{"demo"}, parts...), flags...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out, tmp
}

// requireGone checks what a demo must leave behind: neither a process that works or was started in tmp, nor a file.
func requireGone(t *testing.T, tmp string) {
	t.Helper()
	s := &system{t: t, dir: tmp, vars: map[string]string{"OPS_TOKEN": "not known to us"}}
	s.requireNothingLeft()
	files, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestTheDemoEndsWithAgreeAndLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd, out, tmp := demo(t, "--json")
	require.NoError(t, cmd.Run(), "%s", out)
	lines := bytes.Split(bytes.TrimSpace([]byte(out.String())), []byte("\n"))
	parts := map[string]bool{}
	var last map[string]any
	for _, line := range lines {
		last = nil
		require.NoError(t, json.Unmarshal(line, &last), "%s", line)
		if part, ok := last["part"].(string); ok {
			parts[part] = true
		}
	}
	require.Equal(t, "agree", last["result"])
	for _, part := range []string{"payment", "outbox", "kafka", "points", "notify", "world", "search", "reconcile", "relay"} {
		require.True(t, parts[part], "no line of %s", part)
	}
	requireGone(t, tmp)
}

func TestCtrlCInTheMiddleOfTheDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd, out, tmp := demo(t)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return bytes.Contains([]byte(out.String()), []byte("SIGKILL")) }, 2*patience, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode(), "%s", out)
	require.NotContains(t, out.String(), "agree")
	requireGone(t, tmp)
}
