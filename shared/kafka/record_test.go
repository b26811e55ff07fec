package kafka

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/paycast/shared/event"
)

func TestRecordComesOutOfItsMessageByteForByte(t *testing.T) {
	t.Parallel()
	bytes := rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "nil") {
			return nil
		}
		return append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
	})
	rapid.Check(t, func(t *rapid.T) {
		want := event.Record{
			Topic:     rapid.String().Draw(t, "topic"),
			Partition: rapid.Int32().Draw(t, "partition"),
			Offset:    rapid.Int64().Draw(t, "offset"),
			Time:      time.Unix(0, rapid.Int64Range(0, 1<<61).Draw(t, "time")).UTC(),
			Key:       bytes.Draw(t, "key"),
			Value:     bytes.Draw(t, "value"),
			Headers: rapid.SliceOf(rapid.Custom(func(t *rapid.T) event.Header {
				return event.Header{Key: rapid.SampledFrom([]string{"ce_id", "a", ""}).Draw(t, "name"), Value: bytes.Draw(t, "value")}
			})).Draw(t, "headers"),
		}
		if want.Headers == nil {
			want.Headers = []event.Header{}
		}
		got, err := Record(Message(want))
		require.NoError(t, err)
		require.Equal(t, want, got)

		// Watermill copies a message before it delivers it again.
		got, err = Record(Message(want).Copy())
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestMessageIsNamedAfterItsEvent(t *testing.T) {
	t.Parallel()
	m := Message(event.Record{Headers: []event.Header{{Key: "ce_id", Value: []byte("E1")}, {Key: "ce_id", Value: []byte("E2")}}})
	require.Equal(t, "E1", m.UUID)
	require.Empty(t, Message(event.Record{}).UUID)
}

func TestMessageThatWasNotMadeHereIsRefused(t *testing.T) {
	t.Parallel()
	m := message.NewMessage("1", []byte("x"))
	_, err := Record(m)
	require.Error(t, err)
	packed := Message(event.Record{Topic: "t", Key: []byte("k"), Headers: []event.Header{{Key: "a", Value: []byte("b")}}}).Metadata[recordKey]
	for cut := range len(packed) {
		m.Metadata[recordKey] = packed[:cut]
		_, err := Record(m)
		require.Error(t, err, "cut after %d bytes", cut)
	}
}
