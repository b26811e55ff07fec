package outbox

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	"example.com/paycast/shared/kafka"
)

// result is the class of an answer, and the value of the metrics' result label.
type result string

const (
	resultAccepted    result = "accepted"    // stored by all in-sync replicas
	resultRejected    result = "rejected"    // the row's own fault; it will never be accepted
	resultUnreachable result = "unreachable" // nothing was stored, and the row is not to blame
	resultUnknown     result = "unknown"     // bytes may have left; stored or not
	resultRefused     result = "refused"     // the destination's fault: no such topic, not authorised
	resultNotSent     result = "not_sent"    // never begun
	resultCrashed     result = "crashed"     // the relay died with it, again
)

// answer is what a send came to.
type answer struct {
	result    result
	code      string // of an error; stable, short, without contents
	partition int32
	offset    int64 // -1: confirmed without an offset
	// everywhere: no broker answers, so no other send has a chance now.
	everywhere bool
}

// The codes of what sarama gives no number, as they stand in last_error_code.
const (
	codeTooLarge    = "message_too_large"
	codeUnencodable = "unencodable"
	codeDeadline    = "publish_deadline" // our own deadline; the send may still succeed
	codeNoBroker    = "out_of_brokers"
	codeClogged     = "publisher_clogged" // all slots are taken by sends that were given up
	codeConnection  = "connection_lost"
	codeNoAnswer    = "no_answer"    // the router's handler panicked, or never called the publisher
	codeBreaker     = "breaker_open" // until the cause is put in its place; see causes
	codeOther       = "other"

	codeLeaseExpired = "lease_expired" // the relay that had the row is gone, or was paused
	codeCrashesRelay = "crashes_relay" // it died with this row more often than chance explains
)

// classify sorts the error of a publish into one of the answers. It decides by type and value through all wrapping,
// never by text. What it does not know is unknown: that is sent again, which is the safe side.
//
// The order matters. "Out of brokers" wraps the cause of the last try, which can be a deadline; and after sarama's own
// retries the error is the last try's, which may hide an earlier one that was stored. Both mean only that a resend can
// be a duplicate, which consumers absorb.
func classify(err error) answer {
	var k sarama.KError
	var config sarama.ConfigurationError
	var encoding sarama.PacketEncodingError
	var op *net.OpError
	switch {
	case err == nil:
		return answer{result: resultAccepted, offset: -1}
	case errors.Is(err, sarama.ErrOutOfBrokers):
		return answer{result: resultUnreachable, code: codeNoBroker, everywhere: true}
	case errors.As(err, &k):
		return answer{result: brokerSays(k), code: "kafka_" + strconv.Itoa(int(k))}
	case errors.As(err, &config):
		return answer{result: resultRejected, code: codeTooLarge} // the only configuration error a message can cause
	case errors.As(err, &encoding):
		return answer{result: resultRejected, code: codeUnencodable}
	case errors.Is(err, sarama.ErrNotConnected), errors.Is(err, sarama.ErrBrokerNotFound), errors.Is(err, sarama.ErrClosedClient),
		errors.Is(err, sarama.ErrShuttingDown), errors.Is(err, kafka.ErrClosed),
		errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &op) && op.Op == "dial":
		return answer{result: resultUnreachable, code: codeConnection}
	case errors.Is(err, breaker.ErrBreakerOpen):
		return answer{result: resultUnreachable, code: codeBreaker}
	case errors.Is(err, errDeadline), errors.Is(err, context.DeadlineExceeded):
		return answer{result: resultUnknown, code: codeDeadline}
	case errors.As(err, &op):
		return answer{result: resultUnknown, code: codeConnection}
	default:
		return answer{result: resultUnknown, code: codeOther}
	}
}

// brokerSays classifies an error code of Kafka's protocol.
func brokerSays(k sarama.KError) result {
	switch k {
	case sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidTimestamp,
		sarama.ErrInvalidRecord, sarama.ErrUnsupportedForMessageFormat:
		return resultRejected
	case sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic, sarama.ErrTopicAuthorizationFailed,
		sarama.ErrClusterAuthorizationFailed, sarama.ErrPolicyViolation:
		return resultRefused
	case sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrNotEnoughReplicas,
		sarama.ErrBrokerNotAvailable, sarama.ErrReplicaNotAvailable, sarama.ErrNotController, sarama.ErrThrottlingQuotaExceeded:
		return resultUnreachable
	default:
		// Among them 7 (timed out waiting for replicas) and 20 (too few replicas after the append): stored, perhaps.
		return resultUnknown
	}
}

// Classify names what a relay makes of a publisher's error, as its metrics do: accepted, rejected, unreachable, unknown or
// refused.
func Classify(err error) string { return string(classify(err).result) }

// settlement is how an answer that is not "accepted" changes the row.
type settlement struct {
	status        string // "": back to where it was
	code, message string
	counted       int32
	alone         bool
}

func (a answer) settlement(of row) settlement {
	s := settlement{code: a.code, message: string(a.result)}
	switch a.result {
	case resultRejected:
		// The broker refuses a whole batch for its size, so a small row can be refused for its neighbours. Alone it cannot.
		if a.tooLargeTogether() && !of.alone {
			s.status, s.alone = Retry, true
		} else {
			s.status = Dead
		}
	case resultUnreachable:
		s.status = Retry
	case resultUnknown:
		s.status, s.counted = Retry, 1
	default: // not sent, or refused for the destination's sake: untouched
		return settlement{}
	}
	return s
}

// tooLargeTogether: the broker's size limit, which is one of the batch. Our own client's limit is one of the message.
func (a answer) tooLargeTogether() bool {
	return a.code == "kafka_"+strconv.Itoa(int(sarama.ErrMessageSizeTooLarge)) ||
		a.code == "kafka_"+strconv.Itoa(int(sarama.ErrMessageSetSizeTooLarge))
}
