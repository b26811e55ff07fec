package outbox

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

func TestEnvelopeComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := envelope{
			DestinationTopic: rapid.String().Draw(t, "topic"),
			UUID:             rapid.String().Draw(t, "uuid"),
			Payload:          append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "payload")...),
			Metadata:         rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata"),
		}
		data, err := envelopeCodec{}.Marshal(&want)
		require.NoError(t, err)
		var got envelope
		require.NoError(t, envelopeCodec{}.Unmarshal(data, &got))
		require.Equal(t, want, got)
	})
	var e envelope
	require.Error(t, envelopeCodec{}.Unmarshal(nil, &e))
	require.Error(t, envelopeCodec{}.Unmarshal([]byte{200, 1, 'x'}, &e))
	require.ErrorIs(t, envelopeCodec{}.Unmarshal([]byte{0, 0, 0}, &struct{ Other string }{}), errEnvelope)
	_, err := envelopeCodec{}.Marshal("text")
	require.ErrorIs(t, err, errEnvelope)
}

// The forwarder's envelope type is not exported. If an upgrade changes its fields, this test fails, and with it the
// relay would.
func TestForwarderUnderstandsOurEnvelopeAndKeepsTheMessagesContext(t *testing.T) {
	t.Parallel()
	out := &captured{got: make(chan *message.Message, 1)}
	ours := make(chan *message.Message, 1)
	f, err := forwarder.NewForwarder(feed(ours), out, watermill.NopLogger{}, forwarder.Config{Marshaler: envelopeCodec{}, CloseTimeout: time.Second})
	require.NoError(t, err)
	testkit.Run(t, "forwarder", func(ctx context.Context) error {
		go func() {
			<-ctx.Done()
			close(ours)
		}()
		return f.Run(ctx)
	})
	m := message.NewMessage("E1", []byte("payload"))
	m.Metadata["k"] = "v"
	ctx, h := withHolder(t.Context())
	m.SetContext(ctx)
	wrapped, err := wrap("order-events", m)
	require.NoError(t, err)
	ours <- wrapped
	got := <-out.got
	require.Equal(t, "order-events", out.topic)
	require.True(t, m.Equals(got))
	require.Same(t, h, got.Context().Value(holderKey{}), "the way back for the answer")
}

func TestMessageWithoutEnvelopeIsRefusedAndItsContentsAreNotLogged(t *testing.T) {
	t.Parallel()
	logs := testkit.Logs()
	alien := make(chan *message.Message, 1)
	f, err := forwarder.NewForwarder(feed(alien), &captured{}, kafka.Logger(slog.New(logs)), forwarder.Config{Marshaler: envelopeCodec{}, CloseTimeout: time.Second})
	require.NoError(t, err)
	testkit.Run(t, "forwarder", func(ctx context.Context) error {
		go func() {
			<-ctx.Done()
			close(alien)
		}()
		return f.Run(ctx)
	})
	m := message.NewMessage("alien", []byte("\xff\xff+4512345678"))
	m.Metadata["phone"] = "+4512345678"
	alien <- m
	<-m.Nacked()
	require.NotEmpty(t, logs.Find("Could not unwrap a message from an envelope"))
	require.NotContains(t, logs.Text(), "4512345678")
}

// feed is a Subscriber.
type feed chan *message.Message

func (c feed) Subscribe(context.Context, string) (<-chan *message.Message, error) { return c, nil }
func (c feed) Close() error                                                       { return nil }

// captured is a Publisher.
type captured struct {
	topic string
	got   chan *message.Message
}

func (c *captured) Publish(topic string, msgs ...*message.Message) error {
	c.topic = topic
	for _, m := range msgs {
		c.got <- m
	}
	return nil
}

func (c *captured) Close() error { return nil }
