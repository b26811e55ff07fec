package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/replay"
)

func TestProgressIsOneLineOnATerminalAndPlainLinesElsewhere(t *testing.T) {
	t.Parallel()
	one := "ONE"
	at := func(state string, settled int64) replay.Job {
		return replay.Job{Items: 3, State: state, Stage: &one, States: map[string]int64{"SETTLED": settled}, Results: map[string]int64{"applied": settled}}
	}
	jobs := []replay.Job{at(replay.Running, 0), at(replay.Running, 1), at(replay.Running, 1), at(replay.Done, 3)}
	first, second, last := "[..............................] 0/3  RUNNING ONE  applied 0",
		"[##########....................] 1/3  RUNNING ONE  applied 1", "[##############################] 3/3  DONE ONE  applied 3"
	for redraw, want := range map[bool]string{
		false: first + "\n" + second + "\n" + last + "\n",
		true:  "\r\x1b[K" + first + "\r\x1b[K" + second + "\r\x1b[K" + last + "\n",
	} {
		var out bytes.Buffer
		m := meter{out: &out, redraw: redraw}
		for _, job := range jobs {
			m.tell(job)
		}
		require.Equal(t, want, out.String())
	}

	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, read.Close()); require.NoError(t, write.Close()) }()
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a terminal is a device
	require.NoError(t, err)
	defer func() { require.NoError(t, device.Close()) }()
	require.False(t, terminal(&bytes.Buffer{}))
	require.False(t, terminal(file))
	require.False(t, terminal(write))
	require.True(t, terminal(device))
}
