package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/settings"
	"example.com/paycast/shared/testkit"
)

func TestDoctorPassesASoundSystemAndNamesWhatIsChanged(t *testing.T) {
	t.Parallel()
	s := newStack(t, inbox.Migrations, outbox.Migrations)
	s.shop()
	s.relay()
	s.coupon()
	code, out, complain := s.payctl("doctor")
	require.Equal(t, exitOK, code, complain)
	require.Contains(t, out, "lease 15s > deadline 5s + margin 2s = 7s")
	require.Contains(t, out, "partitions 12 = 12")
	require.Contains(t, out, "auto.create.topics.enable false = false")
	require.Contains(t, out, "and to no other service's database")

	code, _, complain = s.payctl("doctor", "--horizon", "9000h")
	require.Equal(t, exitNothing, code)
	require.Contains(t, complain, "raise retention.ms")

	// The service is given rights that it need not have, and another system's Kafka has other topics.
	s.exec("grant create on schema public to " + roleOf(s))
	s.env["KAFKA_BROKERS"] = testkit.Kafka(t, event.Topic+":3").Brokers()
	var findings []settings.Finding
	s.json(exitNothing, &findings, "doctor")
	bad := map[string]int{}
	for _, f := range findings {
		if !f.OK {
			bad[f.Rule]++
		}
	}
	require.Equal(t, map[string]int{"rights": 3, "partitions": 1, "topics": 1}, bad)
}

func roleOf(s *stack) (role string) {
	s.t.Helper()
	require.NoError(s.t, s.db.Raw("select rolname from pg_roles where rolname = 'rows_' || current_database()").Scan(&role).Error)
	return role
}

func TestStatusShowsEveryProcessAndWhyOneIsNotReady(t *testing.T) {
	t.Parallel()
	s := newStack(t, outbox.Migrations)
	s.shop()
	s.append("O-1", true)
	s.relay()
	testkit.Eventually(t, soon, func() error {
		var rows []row
		s.json(exitOK, &rows, "status")
		for _, r := range rows {
			if r["process"] == "relay" && r["dead"] == 1.0 && r["ready"] == true {
				return nil
			}
		}
		return fmt.Errorf("not yet: %v", rows)
	})
	_, out, _ := s.payctl("status")
	require.Regexp(t, `(?m)^shop +true +- +- +- `, out, "a process without such a metric shows a dash")

	s.env["GONE_OPS_URL"] = "http://" + testkit.FreeAddr(t)
	code, out, complain := s.payctl("status")
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "relay")
	require.Contains(t, complain, "gone cannot be asked")
	code, _, complain = s.payctl("outbox", "list")
	require.Equal(t, exitFailed, code)
	require.Contains(t, complain, "gone cannot be asked")
}

func TestWrongTokenIsNamedAndNothingIsDone(t *testing.T) {
	t.Parallel()
	s := newStack(t, outbox.Migrations)
	s.shop()
	id := s.append("O-1", false)
	s.exec("update t_outbox_event set status = 'DEAD', last_error_code = 'too_large'")
	s.env["OPS_TOKEN"] = "another-systems-token"
	for _, args := range [][]string{
		{"outbox", "list"}, {"outbox", "show", id}, {"outbox", "release", id, "--reason", "r", "--yes"}, {"letters", "list"},
	} {
		code, _, complain := s.payctl(args...)
		require.Equal(t, exitFailed, code, args)
		require.Contains(t, complain, "shop refuses the token: OPS_TOKEN in the environment", args)
	}
	code, _, complain := s.payctl("doctor")
	require.Equal(t, exitNothing, code)
	require.Contains(t, complain, "ready, shop")
	require.Zero(t, s.count("t_audit"))
	require.Equal(t, 1, s.count("t_outbox_event where status = 'DEAD'"))
}

func TestCommandLineMistakesAreUsageErrors(t *testing.T) {
	t.Parallel()
	s := &stack{t: t, env: map[string]string{"X_OPS_URL": "http://127.0.0.1:1"}}
	for _, args := range [][]string{{}, {"outbox"}, {"outbox", "delete", "1"}, {"letters", "list", "--limit", "0"}, {"outbox", "release", "--reason", "r"}} {
		code, _, complain := s.payctl(args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, complain, "payctl --help")
	}
	code, out, _ := s.payctl("outbox", "release", "--help")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "--reason")
}

// TestRunbookTypesWhatThereIs: at three in the morning a command of the runbook has to be one.
func TestRunbookTypesWhatThereIs(t *testing.T) {
	t.Parallel()
	var content []byte
	for _, page := range []string{"runbook", "replay"} {
		read, err := os.ReadFile("../../docs/" + page + ".md")
		require.NoError(t, err)
		content = append(content, read...)
	}
	lines := regexp.MustCompile("bin/payctl ([^|#`\n]+)").FindAllStringSubmatch(string(content), -1)
	require.Greater(t, len(lines), 20)
	word := regexp.MustCompile(`"[^"]*"|\S+`)
	for _, line := range lines {
		var args []string
		for _, w := range word.FindAllString(line[1], -1) {
			args = append(args, strings.Trim(w, `"`))
		}
		_, err := new(commands).parse(args)
		require.NoError(t, err, line[0])
	}
}
