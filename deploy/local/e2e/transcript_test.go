package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/testkit"
)

var update = flag.Bool("update", false, "write what the commands answer into docs/replay.md")

// TestReplayPageShowsWhatTheCommandsAnswer types the console blocks of docs/replay.md, with -update also what is shown
// there. An id of the page stands for the id that the same place of this run shows.
func TestReplayPageShowsWhatTheCommandsAnswer(t *testing.T) {
	t.Parallel()
	const page = root + "/docs/replay.md"
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	parts := strings.Split(string(content), "```")
	r := &reader{t: t, ids: strings.NewReplacer(), dir: t.TempDir()}
	for i, part := range parts {
		if block, ok := strings.CutPrefix(part, "console\n"); ok {
			parts[i] = "console\n" + r.types(block)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(strings.Join(parts, "```")), 0o644))
	}
	r.waits()
	r.s.requireAgreement()
	r.eachCreditIsThereOnce()
}

// reader is somebody who follows a page.
type reader struct {
	t     *testing.T
	s     *system
	dir   string            // where he types
	known []string          // pairs of an id of the page and that of this run
	ids   *strings.Replacer // of known
}

// types types the commands of a block, compares the answers, and returns the block with those of this run.
func (r *reader) types(block string) string {
	r.t.Helper()
	var shown []string
	for _, step := range strings.Split(strings.TrimPrefix(block, "$ "), "\n$ ") {
		command, want, _ := strings.Cut(strings.TrimRight(step, "\n"), "\n")
		command = r.ids.Replace(command)
		got := r.answer(command)
		r.learn(want, got)
		if !*update {
			require.Equal(r.t, masked(want), masked(got), "the page shows something else for: %s\nit says now:\n%s", command, got)
		}
		shown = append(shown, strings.TrimRight("$ "+command+"\n"+got, "\n")+"\n")
	}
	return strings.Join(shown, "\n")
}

func (r *reader) answer(command string) string {
	r.t.Helper()
	if settings, ok := strings.CutSuffix(command, " make local"); ok {
		r.s = upWith(r.t, strings.Fields(settings), r.t.TempDir())
		bin, err := programs()
		require.NoError(r.t, err)
		require.NoError(r.t, os.Mkdir(filepath.Join(r.dir, ".run"), 0o755))
		require.NoError(r.t, os.Symlink(bin, filepath.Join(r.dir, "bin")))
		require.NoError(r.t, os.Symlink(filepath.Join(r.s.dir, "vars"), filepath.Join(r.dir, ".run", "env")))
		return ""
	}
	r.waits()
	if sql := psql.FindStringSubmatch(command); sql != nil {
		return r.sql(sql[1], sql[2])
	}
	typed := exec.CommandContext(r.t.Context(), "sh", "-c", command)
	typed.Dir = r.dir
	typed.Env = os.Environ()
	for name, value := range r.s.vars {
		typed.Env = append(typed.Env, name+"="+value)
	}
	out, err := typed.CombinedOutput()
	if ended := new(exec.ExitError); !errors.As(err, &ended) { // to end with a complaint is an answer too
		require.NoError(r.t, err, command)
	}
	return string(out)
}

// waits lets points decide about what has been paid: a reader is slower than the system.
func (r *reader) waits() {
	r.t.Helper()
	const paid = `SELECT count(*) FROM t_outbox_event WHERE event_type = 'PaymentSucceeded'`
	const decided = `SELECT count(*) FROM t_message_consume WHERE event_type = 'PaymentSucceeded' AND status IN ('SUCCESS', 'DEAD')`
	testkit.Eventually(r.t, 5*time.Minute, func() error {
		if want, got := r.s.count("PAYMENT", paid), r.s.count("POINTS", decided); got != want {
			return fmt.Errorf("points has decided about %d of %d payments", got, want)
		}
		return nil
	})
}

var psql = regexp.MustCompile(`^psql "\$(\w+)" -c "(.*)"$`)

// sql answers as psql does to statements that return nothing; it need not be on this machine.
func (r *reader) sql(database, statement string) string {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.s.vars[database])
	require.NoError(r.t, err)
	defer func() { _ = conn.Close(r.t.Context()) }()
	tag, err := conn.Exec(r.t.Context(), statement)
	require.NoError(r.t, err, statement)
	return tag.String() + "\n"
}

var (
	id = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\br-[0-9a-f]{12}\b`)
	// other is what else no two runs have in common.
	other = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ|hash [0-9a-f]{12}|(?m:^points +\d+ )`) // the last is a letter's number
	// progress is told as often as it changes between two looks.
	progress = regexp.MustCompile(`(?m)^\[.*  RUNNING .*\n`)
)

// masked keeps the widths, so that tables keep theirs.
func masked(answer string) string {
	answer = progress.ReplaceAllString(answer+"\n", "")
	for _, varies := range []*regexp.Regexp{id, other} {
		answer = varies.ReplaceAllStringFunc(answer, func(s string) string { return strings.Repeat("x", len(s)) })
	}
	return strings.TrimRight(answer, "\n")
}

// learn pairs the ids of the page with those of this run, in the order in which both show them.
func (r *reader) learn(want, got string) {
	theirs, ours := id.FindAllString(want, -1), id.FindAllString(got, -1)
	for i := range min(len(theirs), len(ours)) {
		r.known = append(r.known, theirs[i], ours[i])
	}
	r.ids = strings.NewReplacer(r.known...)
}

func (r *reader) eachCreditIsThereOnce() {
	r.t.Helper()
	const paid = `SELECT count(*) FROM t_outbox_event WHERE event_type = 'PaymentSucceeded'`
	require.EqualValues(r.t, 14, r.s.count("PAYMENT", paid))
	require.EqualValues(r.t, 14, r.s.count("POINTS", `SELECT count(DISTINCT order_no) FROM t_ledger`))
	require.EqualValues(r.t, 14, r.s.count("POINTS", `SELECT count(*) FROM t_ledger`))
	require.Zero(r.t, r.s.count("POINTS", `SELECT count(*) FROM t_account a
		WHERE balance <> (SELECT sum(points) FROM t_ledger l WHERE l.user_id = a.user_id)`))
}
