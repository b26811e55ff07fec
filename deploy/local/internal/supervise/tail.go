package supervise

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	tailLines = 8
	tailBytes = 16 << 10
	lineWidth = 400
)

// Tail is the end of what the process wrote since its last start, each line indented and cut to a readable length.
func (p *Process) Tail(lines int) string {
	p.mu.Lock()
	from := p.logStart
	p.mu.Unlock()
	f, err := os.Open(p.Log)
	if err != nil {
		return "    (no log: " + err.Error() + ")"
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil {
		from = max(from, info.Size()-tailBytes)
	}
	text, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return "    (no log: " + err.Error() + ")"
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	var out []string
	for _, line := range all[max(0, len(all)-lines):] {
		if len(line) > lineWidth {
			line = line[:lineWidth] + "…"
		}
		out = append(out, "    "+line)
	}
	return strings.Join(out, "\n")
}

// Obituary says how a process ended that nobody asked to end.
func (p *Process) Obituary() string {
	p.mu.Lock()
	how := p.how
	p.mu.Unlock()
	return fmt.Sprintf("%s ended by itself (%s); its last log lines, of %s:\n%s", p.Name, how, p.Log, p.Tail(tailLines))
}
