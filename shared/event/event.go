package event

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Event is one fact, as it stands in an outbox row and on the wire. Payload is never re-encoded: the bytes that the
// producer committed are the bytes that every consumer sees.
type Event struct {
	ID               string    // ce_id; see NewID
	Type             string    // ce_type; one of the catalogue's names
	Version          int       // ce_eventversion; the payload's major version, from 1
	Source           string    // ce_source; a URI reference naming the producer
	AggregateType    string    // ce_aggregatetype
	AggregateID      string    // ce_subject and the record's key; the order number
	AggregateVersion int64     // ce_aggregateversion; from 1, without gaps
	Time             time.Time // ce_time; when it happened, UTC, microseconds
	TraceParent      string    // W3C trace context of the request that caused it; may be empty
	Payload          []byte    // JSON; see Order
}

// namespace is the UUIDv5 name space of all event ids. Changing it would give every old fact a new identity.
var namespace = uuid.MustParse("5f0c3f52-8f6e-5d6b-9a55-6a1f6f1b7c11")

// NewID names a fact: the same event type, order and cause always give the same id. The cause is what made the fact
// happen once: the provider's trade number for a payment, the idempotency key of a command for the rest.
func NewID(eventType, orderNo, cause string) string {
	h := sha256.New()
	for _, part := range []string{eventType, orderNo, cause} {
		writePart(h, []byte(part))
	}
	return uuid.NewSHA1(namespace, h.Sum(nil)).String()
}

// Hash is the SHA-256, in hex, of everything that makes two deliveries the same fact: type, version, aggregate and
// payload bytes. Two deliveries with one id and different hashes are a conflict, never a duplicate.
func (e Event) Hash() string {
	h := sha256.New()
	writePart(h, []byte(e.Type))
	writePart(h, []byte(strconv.Itoa(e.Version)))
	writePart(h, []byte(e.AggregateID))
	writePart(h, []byte(strconv.FormatInt(e.AggregateVersion, 10)))
	writePart(h, e.Payload)
	return hex.EncodeToString(h.Sum(nil))
}

// writePart puts the length before the bytes, so that ("ab", "c") and ("a", "bc") differ.
func writePart(h hash.Hash, part []byte) {
	_, _ = fmt.Fprintf(h, "%d:", len(part)) // a hash never fails to write
	_, _ = h.Write(part)
}
