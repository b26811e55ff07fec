// Package e2e drives whole systems through the paycast-local binary, as a person would, and looks at them from outside.
package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/deploy/local/internal/ask"
	"example.com/paycast/deploy/local/internal/supervise"
	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/testkit"
)

// quick shortens what a system waits for after a crash, and lets all SMS go at once.
var quick = []string{
	"OUTBOX_LEASE=3s", "OUTBOX_SEND_DEADLINE=1500ms", "OUTBOX_SETTLE_MARGIN=500ms", "OUTBOX_POLL=200ms",
	"KAFKA_SESSION_TIMEOUT=2s", "SMS_RATE=1000", "SMS_BURST=1000", "SMS_TIMEOUT=1s", "SMS_LEASE=5s",
}

const root = "../../.."

// programs builds all binaries once per test run, where they also are for people.
var programs = sync.OnceValues(func() (bin string, err error) {
	if out, err := exec.Command("make", "-C", root, "build").CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w: %s", err, out)
	}
	return filepath.Abs(filepath.Join(root, "bin"))
})

func binary(t *testing.T, name string) string {
	t.Helper()
	bin, err := programs()
	require.NoError(t, err)
	return filepath.Join(bin, name)
}

// system is a running `paycast-local up`.
type system struct {
	*ask.Asker
	t    *testing.T
	dir  string
	vars map[string]string
	cmd  *exec.Cmd
	out  testkit.Output
	done chan struct{}
}

// up starts a system on dir and returns when its env file is there.
func up(t *testing.T, dir string, flags ...string) *system {
	t.Helper()
	return upWith(t, nil, dir, flags...)
}

// upWith adds NAME=value pairs to the environment of all programs.
func upWith(t *testing.T, env []string, dir string, flags ...string) *system {
	t.Helper()
	s := &system{t: t, dir: dir, done: make(chan struct{})}
	file := filepath.Join(dir, "vars")
	s.cmd = exec.Command(binary(t, "paycast-local"), append(append([]string{"up", "--dir", dir, "--env", file}, parts...), flags...)...)
	_ = os.Remove(file) // of a system that was killed
	s.cmd.Env = append(append(os.Environ(), quick...), env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	require.NoError(t, embedded.Start(s.cmd), "it must not outlive a test run that is broken off")
	go func() {
		_ = s.cmd.Wait() // the state says how it ended
		close(s.done)
	}()
	t.Cleanup(func() { s.signal(syscall.SIGINT) })
	require.Eventually(t, func() bool {
		_, err := os.Stat(file)
		return err == nil || s.ended()
	}, 2*patience, 20*time.Millisecond)
	require.False(t, s.ended(), "it ended before it was ready: %s", &s.out)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	s.vars = map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		s.vars[name] = value
	}
	s.Asker, err = ask.New(t.Context(), s.vars)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	t.Cleanup(s.tell)
	return s
}

// tell shows how a system is on which a test has failed: what payctl doctor finds, and each process's last warnings.
func (s *system) tell() {
	if !s.t.Failed() || s.ended() {
		return
	}
	report, _ := s.doctor() // its error says that it has found something
	s.t.Logf("payctl doctor:\n%s", lines(report, func(line string) bool { return !strings.HasPrefix(line, "ok ") }))
	logs, _ := filepath.Glob(filepath.Join(s.dir, "log", "*")) // fails only on a malformed pattern
	for _, file := range logs {
		text, _ := os.ReadFile(file) // what cannot be read is left out
		s.t.Logf("%s:\n%s", filepath.Base(file), lines(string(text), func(line string) bool {
			return strings.Contains(line, "WARN") || strings.Contains(line, "ERROR")
		}))
	}
}

// lines are the last 20 of a text that are worth showing.
func lines(text string, worth func(line string) bool) string {
	var shown []string
	for line := range strings.Lines(text) {
		if worth(line) {
			shown = append(shown, line)
		}
	}
	return strings.Join(shown[max(0, len(shown)-20):], "")
}

func (s *system) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// signal sends sig to paycast-local and waits for its end.
func (s *system) signal(sig os.Signal) {
	if s.ended() {
		return
	}
	require.NoError(s.t, s.cmd.Process.Signal(sig))
	select {
	case <-s.done:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		s.t.Errorf("paycast-local did not end within %v of %v: %s", patience, sig, &s.out)
	}
}

// command runs another paycast-local on the same directory.
func (s *system) command(args ...string) (string, error) {
	out, err := exec.Command(binary(s.t, "paycast-local"), append(args, "--dir", s.dir)...).CombinedOutput()
	return string(out), err
}

func (s *system) do(verb, name string) {
	s.t.Helper()
	out, err := s.command(verb, name)
	require.NoError(s.t, err, out)
}

func (s *system) ps() (all []supervise.Status) {
	s.t.Helper()
	out, err := s.command("ps", "--json")
	require.NoError(s.t, err, out)
	require.NoError(s.t, json.Unmarshal([]byte(out), &all))
	return all
}

// left lists the processes that belong to the system: those that ps showed, those that carry its token in their
// environment, and those that work in its directory or name it.
func (s *system) left() (all []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // fails only on a malformed pattern
	for _, dir := range dirs {
		env, _ := os.ReadFile(dir + "/environ")
		cmd, _ := os.ReadFile(dir + "/cmdline")
		cwd, _ := os.Readlink(dir + "/cwd")
		if bytes.Contains(env, []byte("OPS_TOKEN="+s.vars["OPS_TOKEN"])) || bytes.Contains(cmd, []byte(s.dir)) || strings.HasPrefix(cwd, s.dir+"/") {
			all = append(all, filepath.Base(dir)+" "+string(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '})))
		}
	}
	return all
}

// requireNothingLeft waits a moment for those that have just been told by the kernel.
func (s *system) requireNothingLeft() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return len(s.left()) == 0 }, patience, 50*time.Millisecond, "still there: %v", s.left)
}

// paidBy makes an order of a new customer, reports its payment as the change says, and returns the order.
func (s *system) paidBy(user string, change func(*ask.Callbacks)) (ask.Order, ask.Report) {
	s.t.Helper()
	o, err := s.CreateOrder(s.t.Context(), "e2e-"+user, customer(user))
	require.NoError(s.t, err)
	pay := ask.Callbacks{OrderNo: o.OrderNo, Amount: 2990, Currency: "EUR", Copies: 1, Parallel: 1}
	if change != nil {
		change(&pay)
	}
	report, err := s.Pay(s.t.Context(), pay)
	require.NoError(s.t, err)
	return o, report
}

func customer(user string) ask.Customer {
	return ask.Customer{User: user, Phone: "+31600000001", Title: "A book", Amount: 2990, Currency: "EUR"}
}

// requireOneOfEach waits until the payment has reached everything, and checks that it has done so once.
func (s *system) requireOneOfEach(o ask.Order, user string) {
	s.t.Helper()
	ctx := s.t.Context()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		rows, err := s.Paid(ctx, o.OrderNo)
		assert.True(c, err == nil && len(rows) == 1 && rows[0].Status == "SENT", "outbox: %v %v", rows, err)
		acc, err := s.Account(ctx, user)
		assert.True(c, err == nil && len(acc.Entries) == 1 && acc.Balance == 29, "points: %v %v", acc, err)
		notices, err := s.Notices(ctx, o.OrderNo)
		assert.True(c, err == nil && len(notices) == 1 && notices[0].Status == "SENT", "notify: %v %v", notices, err)
		doc, err := s.Document(ctx, o.OrderNo)
		assert.True(c, err == nil && doc.Version == 2 && doc.Source.Status == "PAID", "search: %v %v", doc, err)
		assert.True(c, s.smsOf(o.OrderNo) == 1, "sms: %d", s.smsOf(o.OrderNo))
	}, patience, 100*time.Millisecond, "the system said: %s", &s.out)
}

// smsOf counts the messages at the provider that speak of the order.
func (s *system) smsOf(orderNo string) (n int) {
	all, err := s.Messages(s.t.Context())
	if err != nil {
		return -1
	}
	for _, of := range all {
		for _, m := range of {
			if strings.Contains(m.Text, orderNo) {
				n++
			}
		}
	}
	return n
}

// requireAgreement lets the reconciler look until it is content. What is on its way may make the first runs differ.
func (s *system) requireAgreement() {
	s.t.Helper()
	ctx := s.t.Context()
	id := ""
	testkit.Eventually(s.t, patience, func() (err error) {
		if id == "" {
			if id, err = s.StartRun(ctx); err != nil {
				return err
			}
		}
		run, err := s.Run(ctx, id)
		if err != nil {
			return err
		}
		if run.Status != "running" {
			id = "" // the next look has a run of its own
		}
		if run.Status != "agree" {
			return fmt.Errorf("run %s: %s: %v", run.ID, run.Status, run.Findings)
		}
		return nil
	})
}
