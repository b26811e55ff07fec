package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADirectoryIsBuiltOnceAndNeverHalf(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	dir := filepath.Join(cache, "built")

	halfway := func(tmp string) error {
		require.NoError(t, os.MkdirAll(filepath.Join(tmp, "half"), 0o755))
		return errors.New("no space")
	}
	require.EqualError(t, once(cache, dir, halfway), "no space")
	require.NoDirExists(t, dir)

	// What a builder leaves that was killed.
	require.NoError(t, os.MkdirAll(filepath.Join(dir+".new", "half"), 0o755))
	var builds atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := once(cache, dir, func(tmp string) error {
				builds.Add(1)
				return os.MkdirAll(filepath.Join(tmp, "whole"), 0o755)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, builds.Load())
	require.DirExists(t, filepath.Join(dir, "whole"))
	require.NoDirExists(t, filepath.Join(dir, "half"))
}

func TestWhatIsFetchedCanBeReadByTheAccountThatRunsIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, text := filepath.Join(dir, "bin", "postgres"), filepath.Join(dir, "text")
	require.NoError(t, os.Mkdir(filepath.Dir(program), 0o700))
	require.NoError(t, os.WriteFile(program, nil, 0o700))
	require.NoError(t, os.WriteFile(text, nil, 0o600))
	require.NoError(t, readableByAll(dir))
	for path, want := range map[string]os.FileMode{filepath.Dir(program): 0o755, program: 0o755, text: 0o644} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm(), path)
	}
}
