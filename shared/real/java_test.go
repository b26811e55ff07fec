package real

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsMissingIsSaidWithWhatToDo(t *testing.T) { // not in parallel: it changes the environment
	empty := t.TempDir()
	t.Setenv("JAVA_HOME", "")
	t.Setenv("PATH", empty)
	_, err := Kafka{Dir: t.TempDir()}.Command(t.Context())
	require.ErrorContains(t, err, "need Java 17 or newer, and there is none: install it")
	_, err = Elasticsearch{Dir: t.TempDir()}.Command(t.Context())
	require.ErrorContains(t, err, "need Java 17 or newer, and there is none: install it")

	home := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(home, "bin"), 0o755))
	old := "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n"
	require.NoError(t, os.WriteFile(filepath.Join(home, "bin", "java"), []byte(old), 0o755))
	t.Setenv("JAVA_HOME", home)
	_, err = Kafka{Dir: t.TempDir()}.Command(t.Context())
	require.ErrorContains(t, err, "is version 11: set JAVA_HOME to a newer one")

	_, err = fetched(t.Context(), "never-fetched", emptyProject, func(string) []string { return nil })
	require.ErrorContains(t, err, "never-fetched has to be fetched first, and Maven is missing: install it")
}
