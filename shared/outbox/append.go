package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/postgres"
)

// ErrNoTransaction is the answer of Append to a handle outside a transaction.
var ErrNoTransaction = errors.New("outbox.Append needs a handle inside a transaction: the event must stand or fall with the change it tells of")

// appended are the columns that Append writes; the table's defaults fill the rest from the database's clock.
type appended struct {
	EventID, AggregateType, AggregateID string
	AggregateVersion                    int64
	EventType                           string
	EventVersion                        int
	Destination, MessageKey             string
	Payload, Headers                    string
}

func (appended) TableName() string { return "t_outbox_event" }

// Append writes e as a PENDING row in the caller's transaction: the row exists exactly if the transaction commits. The
// same event id, or the same version of the same aggregate, a second time is a unique violation, which ends the
// transaction; callers make that impossible by changing the aggregate conditionally first. The relay sends what is
// written here, byte for byte, but for the traceparent, which while sends are traced is the send's.
//
// The queue of a key is its order, so aggregates of different types must not share ids. All events go to event.Topic.
func Append(ctx context.Context, tx *gorm.DB, e event.Event) error { // FLOW 3/9
	if !postgres.InTx(tx) {
		return ErrNoTransaction
	}
	headers, err := encodeHeaders(e.Headers())
	if err == nil {
		err = sendable(e)
	}
	if err != nil {
		return fmt.Errorf("appending %s %s to the outbox: %w", e.Type, e.ID, err)
	}
	// A session of its own: conditions on the caller's handle must not reach this statement.
	err = tx.Session(&gorm.Session{NewDB: true, Context: ctx}).Create(&appended{
		EventID: e.ID, AggregateType: e.AggregateType, AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion,
		EventType: e.Type, EventVersion: e.Version, Destination: event.Topic, MessageKey: e.AggregateID,
		Payload: string(e.Payload), Headers: headers,
	}).Error
	if err != nil {
		return fmt.Errorf("appending %s %s to the outbox: %w", e.Type, e.ID, err)
	}
	return nil
}

// sendable refuses here, where the caller can still roll back, what every consumer would have to park. It decodes the
// record that the event will become.
func sendable(e event.Event) error {
	if !utf8.Valid(e.Payload) || strings.ContainsRune(string(e.Payload), 0) {
		return errors.New("payload is not text")
	}
	_, err := event.Decode(event.Record{Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()})
	return err
}

// encodeHeaders writes one "name: value" per line: text that an operator can read, that keeps the order, and that costs
// the relay next to nothing to take apart.
func encodeHeaders(hs []event.Header) (string, error) {
	var b strings.Builder
	for _, h := range hs {
		if strings.ContainsFunc(h.Key, func(r rune) bool { return r == ':' || r < ' ' }) ||
			!utf8.Valid(h.Value) || strings.ContainsFunc(string(h.Value), func(r rune) bool { return r < ' ' }) {
			return "", fmt.Errorf("header %q has a control character", h.Key)
		}
		b.WriteString(h.Key)
		b.WriteString(": ")
		b.Write(h.Value)
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// decodeHeaders makes all values parts of one copy of the text: a dozen small allocations per message were 5 % of a
// relay's time.
func decodeHeaders(text string) []event.Header {
	hs := make([]event.Header, 0, strings.Count(text, "\n"))
	values := []byte(text)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		begin := min(len(name)+len(": "), len(line))
		end := begin + len(value)
		hs = append(hs, event.Header{Key: name, Value: values[begin:end:end]})
		values = values[len(line):]
	}
	return hs
}
