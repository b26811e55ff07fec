package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"
	pkgerrors "github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/testkit"
)

func TestErrorsAreClassifiedByTypeThroughAllWrapping(t *testing.T) {
	t.Parallel()
	refusedConn := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	timedOut := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		err        error
		want       result
		code       string
		everywhere bool
	}{
		"stored":                                {nil, resultAccepted, "", false},
		"no broker left, after a deadline":      {sarama.Wrap(sarama.ErrOutOfBrokers, timedOut), resultUnreachable, codeNoBroker, true},
		"no broker left, connection refused":    {sarama.Wrap(sarama.ErrOutOfBrokers, refusedConn), resultUnreachable, codeNoBroker, true},
		"connection refused":                    {refusedConn, resultUnreachable, codeConnection, false},
		"never connected":                       {sarama.ErrNotConnected, resultUnreachable, codeConnection, false},
		"leader elsewhere":                      {sarama.ErrNotLeaderForPartition, resultUnreachable, "kafka_6", false},
		"no leader":                             {sarama.ErrLeaderNotAvailable, resultUnreachable, "kafka_5", false},
		"too few replicas before the append":    {sarama.ErrNotEnoughReplicas, resultUnreachable, "kafka_19", false},
		"broker gone":                           {sarama.ErrBrokerNotAvailable, resultUnreachable, "kafka_8", false},
		"replica gone":                          {sarama.ErrReplicaNotAvailable, resultUnreachable, "kafka_9", false},
		"not the controller":                    {sarama.ErrNotController, resultUnreachable, "kafka_41", false},
		"throttled":                             {sarama.ErrThrottlingQuotaExceeded, resultUnreachable, "kafka_89", false},
		"broker not known":                      {sarama.ErrBrokerNotFound, resultUnreachable, codeConnection, false},
		"client closed":                         {sarama.ErrClosedClient, resultUnreachable, codeConnection, false},
		"client shutting down":                  {sarama.ErrShuttingDown, resultUnreachable, codeConnection, false},
		"publisher closed":                      {kafka.ErrClosed, resultUnreachable, codeConnection, false},
		"breaker without a cause":               {breaker.ErrBreakerOpen, resultUnreachable, codeBreaker, false},
		"read deadline":                         {timedOut, resultUnknown, codeConnection, false},
		"our deadline":                          {errDeadline, resultUnknown, codeDeadline, false},
		"a context's deadline":                  {context.DeadlineExceeded, resultUnknown, codeDeadline, false},
		"reset":                                 {&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, resultUnknown, codeConnection, false},
		"end of stream":                         {io.EOF, resultUnknown, codeOther, false},
		"too few replicas after the append":     {sarama.ErrNotEnoughReplicasAfterAppend, resultUnknown, "kafka_20", false},
		"replicas too slow":                     {sarama.ErrRequestTimedOut, resultUnknown, "kafka_7", false},
		"storage error":                         {sarama.ErrKafkaStorageError, resultUnknown, "kafka_56", false},
		"out of order sequence":                 {sarama.ErrOutOfOrderSequenceNumber, resultUnknown, "kafka_45", false},
		"incomplete answer":                     {sarama.ErrIncompleteResponse, resultUnknown, codeOther, false},
		"anything new":                          {errors.New("never seen"), resultUnknown, codeOther, false},
		"too large for the broker":              {sarama.ErrMessageSizeTooLarge, resultRejected, "kafka_10", false},
		"too large for the broker together":     {sarama.ErrMessageSetSizeTooLarge, resultRejected, "kafka_18", false},
		"too large for the client":              {sarama.ConfigurationError("message too large"), resultRejected, codeTooLarge, false},
		"invalid timestamp":                     {sarama.ErrInvalidTimestamp, resultRejected, "kafka_32", false},
		"format too old for it":                 {sarama.ErrUnsupportedForMessageFormat, resultRejected, "kafka_43", false},
		"invalid record":                        {sarama.ErrInvalidRecord, resultRejected, "kafka_87", false},
		"cannot be encoded":                     {sarama.PacketEncodingError{Info: "x"}, resultRejected, "unencodable", false},
		"unknown topic":                         {sarama.ErrUnknownTopicOrPartition, resultRefused, "kafka_3", false},
		"invalid topic":                         {sarama.ErrInvalidTopic, resultRefused, "kafka_17", false},
		"not authorised for the topic":          {sarama.ErrTopicAuthorizationFailed, resultRefused, "kafka_29", false},
		"not authorised for idempotent produce": {sarama.ErrClusterAuthorizationFailed, resultRefused, "kafka_31", false},
		"against a policy":                      {sarama.ErrPolicyViolation, resultRefused, "kafka_44", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, err := range []error{c.err, pkgerrors.Wrapf(c.err, "cannot produce message %s", "E1"), wrapped(c.err)} {
				require.Equal(t, answer{result: c.want, code: c.code, everywhere: c.everywhere, offset: offsetOf(c.want)}, classify(err))
			}
		})
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("publishing: %w", errors.Join(pkgerrors.WithMessage(err, "a"), context.Canceled))
}

func offsetOf(r result) int64 {
	if r == resultAccepted {
		return -1
	}
	return 0
}

// answers sends one event after the other through the real client and gives their answers.
func (s *stage) answers(topic string, n, size int) []answer {
	s.t.Helper()
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: s.kafka.Brokers(), ClientID: "relay"})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, pub.Close()) })
	m, err := newMetrics(prometheus.NewRegistry())
	require.NoError(s.t, err)
	p := newPublisher(pub, time.Minute, 64, m)
	return s.sendThrough(p, topic, n, size)
}

func (s *stage) sendThrough(p *publisher, topic string, n, size int) (out []answer) {
	for i := range n {
		e := created(fmt.Sprint("O-", i), 1)
		e.Payload = []byte(strings.Repeat("x", size))
		out = append(out, p.send(topic, kafka.Message(event.Record{Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()})))
	}
	return out
}

// What a real client on a broker with faults answers. "stored" is how many of the records stand on the topic afterwards:
// with unknown it can be any number, which is why the class exists.
func TestFaultsOfTheBrokerGetTheRightAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  func(*testkit.Broker)
		topic  string
		size   int
		want   result
		code   string
		stored int
	}{
		"none":               {func(*testkit.Broker) {}, event.Topic, 10, resultAccepted, "", 3},
		"killed":             {(*testkit.Broker).Kill, event.Topic, 10, resultUnreachable, codeNoBroker, 0},
		"unknown topic":      {func(*testkit.Broker) {}, "mistyped", 10, resultRefused, "kafka_3", 0},
		"invalid topic name": {func(*testkit.Broker) {}, "no spaces", 10, resultRefused, "kafka_17", 0},
		"too large for us":   {func(*testkit.Broker) {}, event.Topic, 1100000, resultRejected, codeTooLarge, 0},
		"not authorised":     {fail(kerr.TopicAuthorizationFailed), event.Topic, 10, resultRefused, "kafka_29", 0},
		"too large for it":   {fail(kerr.MessageTooLarge), event.Topic, 10, resultRejected, "kafka_10", 0},
		"too few replicas":   {fail(kerr.NotEnoughReplicas), event.Topic, 10, resultUnreachable, "kafka_19", 0},
		"replicas too slow":  {fail(kerr.RequestTimedOut), event.Topic, 10, resultUnknown, "kafka_7", -1},
		"stored, unsure":     {fail(kerr.NotEnoughReplicasAfterAppend), event.Topic, 10, resultUnknown, "kafka_20", -1},
		"storage error":      {fail(kerr.KafkaStorageError), event.Topic, 10, resultUnknown, "kafka_56", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stage{t: t, kafka: testkit.Kafka(t, event.Topic)}
			c.fault(s.kafka)
			for _, a := range s.answers(c.topic, 3, c.size) {
				require.Equal(t, c.want, a.result, a.code)
				require.Equal(t, c.code, a.code)
			}
			if name == "killed" {
				s.kafka.Restart()
			}
			if c.stored >= 0 {
				require.Len(t, testkit.ReadTopic(t, s.kafka.Brokers(), event.Topic), c.stored)
			}
		})
	}
}

func fail(err *kerr.Error) func(*testkit.Broker) {
	return func(b *testkit.Broker) { b.FailProduce(event.Topic, -1, err) }
}

func TestBreakersAnswerIsTracedToItsCause(t *testing.T) {
	t.Parallel()
	s := &stage{t: t, kafka: testkit.Kafka(t, event.Topic)}
	for i, a := range s.answers("mistyped", 10, 10) { // the breaker opens after three
		require.Equal(t, resultRefused, a.result, "send %d: %s", i, a.code)
	}
	s.kafka.Kill()
	for i, a := range s.answers(event.Topic, 10, 10) {
		require.Equal(t, resultUnreachable, a.result, "send %d: %s", i, a.code)
		require.True(t, a.everywhere)
	}
}

// What the breaker stops has not left at all, even where what it stops for may have.
func TestUnknownCauseIsUnreachableBehindItsBreaker(t *testing.T) {
	t.Parallel()
	var c causes
	behind := func(cause answer) answer {
		require.Equal(t, cause, c.explain(event.Topic, cause))
		return c.explain(event.Topic, classify(breaker.ErrBreakerOpen))
	}
	require.Equal(t, answer{result: resultUnreachable, code: "kafka_56"}, behind(classify(sarama.ErrKafkaStorageError)))
	require.Equal(t, answer{result: resultUnreachable, code: "kafka_56"}, behind(classify(errDeadline)), "our own deadline is no cause")
	require.Equal(t, answer{result: resultRefused, code: "kafka_3"}, behind(classify(sarama.ErrUnknownTopicOrPartition)))
}

func TestPanicOfTheClientIsAnUnknownAnswer(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	p := newPublisher(nil, time.Minute, 1, m)
	require.Equal(t, answer{result: resultUnknown, code: codeOther}, p.sendOne(&stage{t: t}))
}

func TestHungBrokerCostsOneDeadlineAndBoundedGoroutines(t *testing.T) {
	t.Parallel()
	s := &stage{t: t, kafka: testkit.Kafka(t, event.Topic)}
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: s.kafka.Brokers(), ClientID: "relay"})
	require.NoError(t, err)
	defer func() { require.NoError(t, pub.Close()) }()
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg)
	require.NoError(t, err)
	p, patient := newPublisher(pub, 100*time.Millisecond, 2, m), newPublisher(pub, time.Minute, 2, m)
	require.Equal(t, resultAccepted, patient.sendOne(s).result)
	s.kafka.Pause()
	require.Equal(t, answer{result: resultUnknown, code: codeDeadline}, p.sendOne(s))
	require.Equal(t, answer{result: resultUnknown, code: codeDeadline}, p.sendOne(s))
	require.Equal(t, answer{result: resultUnreachable, code: codeClogged, everywhere: true}, p.sendOne(s), "both slots are taken by sends that were given up")
	s.kafka.Resume()
	testkit.Eventually(t, soon, func() error {
		if len(p.slots) > 0 {
			return fmt.Errorf("%d sends are still under way", len(p.slots))
		}
		return nil
	})
	require.Equal(t, resultAccepted, patient.sendOne(s).result)
	require.Len(t, testkit.ReadTopic(t, s.kafka.Brokers(), event.Topic), 4, "unknown: both were stored after all")
}

func (p *publisher) sendOne(s *stage) answer { return s.sendThrough(p, event.Topic, 1, 10)[0] }
