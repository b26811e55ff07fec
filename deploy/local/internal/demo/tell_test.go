package demo

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/deploy/local/internal/console"
)

// output is what fn tells, into a file: no terminal.
func output(t *testing.T, asJSON bool, fn func(*Teller)) []string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	fn(NewTeller(console.New(f), asJSON))
	require.NoError(t, f.Close())
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
}

func shortStory(t *Teller) {
	t.Step("postgres", "at home", time.Second, false)
	t.Chapter("One")
	t.hop("kafka", data{"offset": 7}, "offset %d", 7)
	t.table([]string{"who", "paid"}, [][]string{{"ada", "29.90 EUR"}})
	t.Result("agree")
}

func TestOffATerminalThereAreNoColoursAndTheResultIsTheLastLine(t *testing.T) {
	t.Parallel()
	lines := output(t, false, shortStory)
	require.NotContains(t, strings.Join(lines, ""), "\x1b")
	require.Equal(t, "agree", lines[len(lines)-1])
	require.Contains(t, lines, "  who  paid")
	require.Contains(t, lines, "  ada  29.90 EUR")
}

func TestJSONTellsTheSameAsOneObjectPerLine(t *testing.T) {
	t.Parallel()
	var kinds []string
	for _, line := range output(t, true, shortStory) {
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		kinds = append(kinds, object["kind"].(string))
		if object["kind"] == "hop" {
			require.InDelta(t, 7, object["offset"], 0)
			require.Equal(t, "offset 7", object["text"])
		}
	}
	require.Equal(t, []string{"step", "chapter", "hop", "table", "result"}, kinds)
}
