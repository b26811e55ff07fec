package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func repository(t *testing.T) *Repository {
	t.Helper()
	r, err := Read(root)
	require.NoError(t, err)
	return r
}

func TestWhatTheDocumentsNameExists(t *testing.T) {
	t.Parallel()
	r := repository(t)
	files, err := Documents(root)
	require.NoError(t, err)
	checked := 0
	for _, file := range files {
		spans, links, err := Claims(root, file)
		require.NoError(t, err)
		for _, c := range spans {
			checked++
			if fault := r.Fault(c.Text); fault != "" {
				t.Errorf("%s:%d: `%s`: %s", c.File, c.Line, c.Text, fault)
			}
		}
		for _, c := range links {
			checked++
			if fault := r.LinkFault(c.File, c.Text); fault != "" {
				t.Errorf("%s:%d: %s", c.File, c.Line, fault)
			}
		}
	}
	require.Greater(t, checked, 100, "the documents were not found")
}

// TestAFalseNameIsFound keeps the check itself honest: each kind of claim has one that must fail and one that must not.
func TestAFalseNameIsFound(t *testing.T) {
	t.Parallel()
	r := repository(t)
	for span, fault := range map[string]string{
		"make demo":                           "",
		"make deom":                           "no make target",
		"event.NewID":                         "",
		"event.Event.Hash":                    "",
		"event.NewIdentity":                   "has no NewIdentity",
		"time.Now":                            "",
		"WEBHOOK_SECRETS":                     "",
		"OPS_TOKEN_FILE":                      "",
		"WEBHOOK_SECRTES":                     "nowhere in the program",
		"shared/event":                        "",
		"shared/evnt":                         "no file or folder",
		"t_outbox_event":                      "",
		"TestAFalseNameIsFound":               "",
		"TestAFalseNameIsLost":                "there is no test",
		"outbox_pending_messages":             "",
		"consumer_lag_messages{group}":        "",
		"outbox_pendng_messages":              "nowhere in the program",
		"where status = 'CREATED' and rising": "",
	} {
		got := r.Fault(span)
		if fault == "" {
			require.Empty(t, got, span)
		} else {
			require.Contains(t, got, fault, span)
		}
	}
	require.Contains(t, r.LinkFault("README.md", "docs/nowhere.md"), "leads nowhere")
	require.Contains(t, r.LinkFault("README.md", "docs/architecture.md#no-such-heading"), "has no heading")
	require.Empty(t, r.LinkFault("docs/architecture.md", "../README.md"))
}

func TestEachEnvironmentNameHasItsLine(t *testing.T) {
	t.Parallel()
	code, err := Variables(root)
	require.NoError(t, err)
	document, err := Settings(filepath.Join(root, "docs/configuration.md"))
	require.NoError(t, err)
	for _, fault := range SettingFaults(code, document) {
		t.Errorf("docs/configuration.md: %s", fault)
	}
	require.Greater(t, len(code), 50, "the names were not found")
	require.Equal(t, []string{"10s"}, code["CONSUMER_HANDLER_TIMEOUT"].Defaults)
	require.ElementsMatch(t, []string{"payment", "world"}, code["MERCHANT_ID"].Readers)
	require.Contains(t, code["OPS_TOKEN"].Readers, "payctl", "which asks for it by name")
}

// TestAFalseLineOfTheConfigurationIsFound: one line for each way in which it can be wrong, and one that is right.
func TestAFalseLineOfTheConfigurationIsFound(t *testing.T) {
	t.Parallel()
	code := map[string]*Variable{
		"RIGHT": {[]string{"points"}, []string{"5s"}}, "SHARED": {[]string{"points", "world"}, nil}, "UNTOLD": {[]string{"points"}, nil},
		"TWICE": {[]string{"points"}, nil}, "LATER": {[]string{"points"}, []string{"5s"}}, "STRANGER": {[]string{"points"}, nil}, "EMPTY": {[]string{"points"}, nil},
	}
	line := func(name, readBy, standard, what string) string {
		return "| `" + name + "` | " + readBy + " | " + standard + " | " + what + " |\n"
	}
	file := filepath.Join(t.TempDir(), "configuration.md")
	require.NoError(t, os.WriteFile(file, []byte("| name | read by | default | what it is |\n|---|---|---|---|\n"+
		line("RIGHT", "`points serve`", "`5s`", "a time")+line("SHARED", "every server", "none", "an address")+
		line("TWICE", "points", "none", "one")+line("TWICE", "points", "none", "two")+line("GONE", "points", "none", "a ghost")+
		line("LATER", "points", "`50s`", "a time")+line("STRANGER", "search", "none", "a time")+line("EMPTY", "points", "", "a time")), 0o600))
	document, err := Settings(file)
	require.NoError(t, err)
	require.Len(t, document, 8)
	require.ElementsMatch(t, []string{
		"UNTOLD has 0 lines and needs one; points reads it",
		"TWICE has 2 lines and needs one; points reads it",
		"GONE has a line, and no program reads it",
		"the default of LATER is 5s, and its line says \"`50s`\"",
		"STRANGER is read by points, and its line says \"search\"",
		"the line of EMPTY has an empty cell",
	}, SettingFaults(code, document))
	_, err = Settings(file + ".gone")
	require.Error(t, err)
}

// TestTheFlowHasItsNineStopsOnceEach: the walkthrough leads along `// FLOW n/9` comments.
func TestTheFlowHasItsNineStopsOnceEach(t *testing.T) {
	t.Parallel()
	found := map[string]string{}
	for _, dir := range []string{"shared", "services"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			for line := range strings.SplitSeq(string(content), "\n") {
				if _, stop, ok := strings.Cut(line, "// FLOW "); ok {
					number, _, _ := strings.Cut(stop, " ")
					number = strings.TrimSuffix(number, ":")
					require.NotContains(t, found, number, "second place: %s", path)
					found[number] = path
				}
			}
			return err
		})
		require.NoError(t, err)
	}
	for _, n := range strings.Split("1/9 2/9 3/9 4/9 5/9 6/9 7/9 8/9 9/9", " ") {
		require.Contains(t, found, n)
	}
	require.Len(t, found, 9)
}
