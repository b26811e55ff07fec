package inbox

import (
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations make the tables of this package. A consumer's database has them beside the consumer's own.
var Migrations = postgres.Files("inbox", files)

// Outcome is what became of a delivery.
type Outcome string

// The outcomes. A handler's function returns one of the first three; each of the others is decided here or by Fail.
const (
	Applied    Outcome = "applied"    // the effect is there
	Superseded Outcome = "superseded" // newer state is there already
	Ignored    Outcome = "ignored"    // by rule, this group does nothing for it
	Duplicate  Outcome = "duplicate"  // the log knows it; an unfinished row belongs to the lane or to an operator
	Conflict   Outcome = "conflict"   // the log knows its id with another body; it is a dead letter
	Waiting    Outcome = "waiting"    // kept for later, not counted as a failure
	Retry      Outcome = "retry"      // kept for later, counted
	Refused    Outcome = "refused"    // the business says no, finally
	Discarded  Outcome = "discarded"  // an operator says no, finally
	Dead       Outcome = "dead"       // a dead letter
)

// Status is the consume log's column.
type Status string

// The states of a row; see the package's comment.
const (
	StatusProcessing Status = "PROCESSING"
	StatusSuccess    Status = "SUCCESS"
	StatusRetry      Status = "RETRY"
	StatusWaiting    Status = "WAITING"
	StatusRejected   Status = "REJECTED"
	StatusDead       Status = "DEAD"
)

// Delivery is one arrival of an event at a group: from a partition, or claimed from the retry lane.
type Delivery struct {
	Group   string
	Event   event.Event
	Record  event.Record
	Failed  int           // attempts so far that failed or never came back, without this one
	Waited  time.Duration // since it came first, by the database's clock
	Claimed bool          // from the lane
	token   string        // with which the lane gave it out,
	hash    string        // what the log says is the request hash of its message,
	spoiled []byte        // and its headers as they stand, when nobody can read them
	// ReplayID names the replay that brought it; empty otherwise. Such a delivery has one attempt.
	ReplayID string
	Result   *string // where the handler says what it made; it becomes result_ref

	Owner    string // should it become a dead letter: who answers for it,
	SkipDead bool   // and whether later versions of its aggregate go on without it
}

// ErrNoTransaction is the answer to a handle outside a transaction: there, log and effect could part.
var ErrNoTransaction = errors.New("inbox: the handle is not inside a transaction")

// ErrFenced says that the lane has given this delivery to somebody else, because its lease ran out. Whatever was done
// in the transaction must be rolled back.
var ErrFenced = errors.New("inbox: the claim has been taken over")

// place names the row and its log position in statements.
func (d Delivery) place() map[string]any {
	return map[string]any{
		"group": d.Group, "event_id": d.Event.ID, "event_type": d.Event.Type,
		"aggregate": d.Event.AggregateID, "version": d.Event.AggregateVersion, "hash": d.Event.Hash(),
		"topic": d.Record.Topic, "partition": d.Record.Partition, "offset": d.Record.Offset,
		"token": d.ownerToken(), "counted": d.counted(),
	}
}

// ownerToken of a row that is not claimed never leaves its transaction, so it need not be unique.
func (d Delivery) ownerToken() string {
	if d.Claimed {
		return d.token
	}
	return "this transaction"
}

// counted is 1 when the claim has counted this attempt in advance, as it must: a crash leaves no time to count.
func (d Delivery) counted() int {
	if d.Claimed {
		return 1
	}
	return 0
}

// uncounted is how many attempts the row does not know of yet when this one fails: a claim has counted it in advance,
// and of what has come from a partition no row has counted anything.
func (d Delivery) uncounted() int {
	if d.Claimed {
		return 0
	}
	return d.Failed + 1
}

// rawHeader keeps a header in JSON. The key is bytes: Kafka does not make sure that it is UTF-8, and a JSON string
// would replace what is not.
type rawHeader struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func encodeHeaders(headers []event.Header) []byte {
	raw := make([]rawHeader, len(headers))
	for i, h := range headers {
		raw[i] = rawHeader{[]byte(h.Key), h.Value}
	}
	b, err := json.Marshal(raw)
	if err != nil {
		panic(err) // byte slices always encode
	}
	return b
}

func decodeHeaders(b []byte) ([]event.Header, error) {
	var raw []rawHeader
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("reading stored headers: %w", err)
	}
	headers := make([]event.Header, len(raw))
	for i, h := range raw {
		headers[i] = event.Header{Key: string(h.Key), Value: h.Value}
	}
	return headers, nil
}

// recordHash tells two records apart that stood at the same place, as after a topic was made anew.
func recordHash(r event.Record) string {
	h := sha256.New()
	part := func(b []byte) {
		n := int64(len(b))
		if b == nil {
			n = -1
		}
		_ = binary.Write(h, binary.BigEndian, n) // a hash never fails to write
		_, _ = h.Write(b)
	}
	part(r.Key)
	part(r.Value)
	for _, header := range r.Headers {
		part([]byte(header.Key))
		part(header.Value)
	}
	return hex.EncodeToString(h.Sum(nil))
}
