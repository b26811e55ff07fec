package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test binary also plays the process that starts parts and is killed: child names what it does then.
const childEnv = "EMBEDDED_TEST_CHILD"

func TestMain(m *testing.M) {
	if role, isChild := os.LookupEnv(childEnv); isChild {
		if err := playChild(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// playChild does its part, says "ready" and then waits to be killed.
func playChild(role string) error {
	what, rest, _ := strings.Cut(role, " ")
	ctx := context.Background()
	switch what {
	case "postgres", "paused-postgres", "stopped-postgres":
		p, err := StartPostgres(ctx, PostgresConfig{Dir: rest})
		if err != nil {
			return err
		}
		switch what {
		case "paused-postgres":
			if _, err := Pause(p.Pid()); err != nil {
				return err
			}
		case "stopped-postgres":
			if err := SignalTree(p.Pid(), syscall.SIGSTOP); err != nil {
				return err
			}
		}
	case "claim":
		port, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		if _, err := ClaimPort(port); err == nil {
			return fmt.Errorf("port %d, which our parent has claimed, is ours as well", port)
		}
	case "kafka":
		addr, dir, _ := strings.Cut(rest, " ")
		if _, err := NewKafka(KafkaConfig{Addr: addr, Dir: dir, Topics: map[string]int32{"letters": 3}}); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	select {}
}

// startChild starts this test binary in a role and returns when it is ready.
func startChild(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+role)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, Start(child))
	t.Cleanup(func() {
		_ = child.Process.Kill() // gone already in most tests
		_ = child.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return child
}

// kill sends SIGKILL and waits for the end.
func kill(t *testing.T, child *exec.Cmd) {
	t.Helper()
	require.NoError(t, child.Process.Kill())
	require.ErrorContains(t, child.Wait(), "killed")
}

// soon is much longer than anything here takes on a machine that has the time.
const soon = 2 * time.Minute
