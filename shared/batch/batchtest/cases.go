package batchtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func wholeWindow(t *testing.T, b topic) {
	b.send(t, 0, 20)
	_, messages := b.join(t, 8)
	out := take(t, messages, 8)
	for i, m := range out {
		require.Equal(t, int64(i), record(t, m).Offset)
	}
	select {
	case m := <-messages:
		t.Fatalf("offset %d came although 8 are unacked", record(t, m).Offset)
	case <-time.After(300 * time.Millisecond):
	}
	out[0].Ack()
	require.Equal(t, int64(8), record(t, take(t, messages, 1)[0]).Offset)
}

func ackedPrefix(t *testing.T, b topic) {
	b.send(t, 0, 10)
	s, messages := b.join(t, 10)
	out := take(t, messages, 10)
	for _, i := range []int{9, 1, 0, 5, 2, 4} { // 3 is missing
		out[i].Ack()
	}
	b.requireCommitted(t, 0, 3)
	require.NoError(t, s.Close())
	require.Equal(t, int64(3), b.committed(t, 0), "after the member's end")
	out[3].Ack() // too late

	_, messages = b.join(t, 10)
	for i, m := range take(t, messages, 7) {
		require.Equal(t, int64(3+i), record(t, m).Offset)
		m.Ack()
	}
	b.requireCommitted(t, 0, 10)
}

func nacked(t *testing.T, b topic) {
	b.send(t, 0, 4)
	s, messages := b.join(t, 4)
	out := take(t, messages, 4)
	out[0].Ack()
	out[2].Ack()
	out[3].Ack()
	out[1].Nack()
	again := take(t, messages, 1)[0]
	require.Equal(t, int64(1), record(t, again).Offset)
	b.requireCommitted(t, 0, 1)
	again.Ack()
	b.requireCommitted(t, 0, 4)
	require.NoError(t, s.Close())
}

func rebalance(t *testing.T, b topic) {
	b.send(t, 0, 6)
	b.send(t, 1, 6)
	_, first := b.join(t, 6)
	out := take(t, first, 12)
	for _, m := range out {
		if o := record(t, m).Offset; o < 2 || o == 4 {
			m.Ack()
		}
	}
	// Nobody acks the rest. The second member must get its partition all the same.
	_, second := b.join(t, 6)
	theirs := take(t, second, 4)
	for i, m := range theirs {
		require.Equal(t, int64(2+i), record(t, m).Offset)
		require.Equal(t, record(t, theirs[0]).Partition, record(t, m).Partition)
	}
	for _, m := range out {
		if o := record(t, m).Offset; o >= 2 {
			require.Error(t, m.Context().Err(), "the context of a message of the lost session")
			m.Ack() // of no account
		}
	}
	mine := take(t, first, 4)
	require.NotEqual(t, record(t, theirs[0]).Partition, record(t, mine[0]).Partition)
	require.Equal(t, int64(2), b.committed(t, 0))
	require.Equal(t, int64(2), b.committed(t, 1))
	for _, m := range append(theirs, mine...) {
		m.Ack()
	}
	b.requireCommitted(t, 0, 6)
	b.requireCommitted(t, 1, 6)
}

func brokerGone(t *testing.T, b topic) {
	b.send(t, 0, 10)
	_, messages := b.join(t, 5)
	for _, m := range take(t, messages, 3) {
		m.Ack()
	}
	b.Kill()
	b.Restart()
	seen := map[int64]bool{0: true, 1: true, 2: true}
	deadline := time.After(within)
	for len(seen) < 10 {
		select {
		case m := <-messages:
			seen[record(t, m).Offset] = true
			m.Ack()
		case <-deadline:
			t.Fatalf("only %d of 10 came", len(seen))
		}
	}
	b.requireCommitted(t, 0, 10)
}
