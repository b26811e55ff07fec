package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"example.com/paycast/shared/replay"
	"example.com/paycast/tools/payctl/internal/fleet"
)

// follow shows the progress until the replay stops; leaving it stops nothing.
func (a *app) follow(p fleet.Process, id string) error {
	m := meter{out: a.out, redraw: terminal(a.out)}
	for {
		var t told
		if err := p.GetJSON(a, replaysPath+"/"+url.PathEscape(id), nil, &t); err != nil {
			return a.fleet.Explain(p, err)
		}
		if !a.json {
			m.tell(t.Replay)
		}
		if t.Replay.State != replay.Running {
			if t.Replay.State == replay.Paused {
				return fmt.Errorf("replay %s is paused: %s", id, text(*t.Replay.Cause))
			}
			return nil
		}
		select {
		case <-a.Done():
			return fmt.Errorf("no longer watching; replay %s goes on: payctl replay status %s", id, id)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// meter tells how far a replay has come: on a terminal in one line that is drawn again, elsewhere, as in a file or a
// pipe, in a line for each change.
type meter struct {
	out    io.Writer
	redraw bool
	last   string
}

func (m *meter) tell(j replay.Job) {
	now := bar(j)
	if now == m.last {
		return
	}
	m.last = now
	if m.redraw {
		now = "\r\x1b[K" + now
	}
	fmt.Fprint(m.out, now)
	if !m.redraw || j.State != replay.Running {
		fmt.Fprintln(m.out)
	}
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

const barWidth = 30

func bar(j replay.Job) string {
	settled, stage := int(j.States["SETTLED"]), ""
	if j.Stage != nil {
		stage = " " + *j.Stage
	}
	full := barWidth
	if j.Items > 0 {
		full = barWidth * settled / j.Items
	}
	return fmt.Sprintf("[%s%s] %d/%d  %s%s  %s", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), settled, j.Items, j.State, stage, counts(j.Results))
}

// counts are told in the order of their names.
func counts[N int | int64](of map[string]N) string {
	if len(of) == 0 {
		return "-"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}
