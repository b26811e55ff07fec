package kafka

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/paycast/shared/event"
)

// recordKey is the one metadata entry that is ours. Its value is binary and means nothing outside this file.
const recordKey = "_record"

// idHeader becomes the message's UUID, so that Watermill's own logs name the event.
const idHeader = "ce_id"

var errNoRecord = errors.New("message carries no record: it was not made by kafka.Message")

// Message wraps a record for Watermill. UUID is the event's id, or empty when the record has none.
func Message(r event.Record) *message.Message {
	m := message.NewMessage("", r.Value)
	b := make([]byte, 0, 512)
	b = binary.AppendVarint(b, int64(r.Partition))
	b = binary.AppendVarint(b, r.Offset)
	b = binary.AppendVarint(b, r.Time.UnixNano())
	b = appendBytes(b, []byte(r.Topic))
	b = appendBytes(b, r.Key)
	b = binary.AppendVarint(b, nilFlag(r.Value)) // a tombstone must not become an empty value
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		b = appendBytes(b, []byte(h.Key))
		b = appendBytes(b, h.Value)
		if m.UUID == "" && h.Key == idHeader {
			m.UUID = string(h.Value)
		}
	}
	m.Metadata[recordKey] = string(b)
	return m
}

// Record gives back what Message wrapped, byte for byte. The error means that the message was made by something else.
func Record(m *message.Message) (event.Record, error) {
	packed, ok := m.Metadata[recordKey]
	if !ok {
		return event.Record{}, errNoRecord
	}
	d := decoder{rest: []byte(packed)}
	r := event.Record{Partition: int32(d.varint()), Offset: d.varint(), Time: time.Unix(0, d.varint()).UTC()}
	r.Topic = string(d.bytes())
	r.Key = d.bytes()
	if d.varint() == 0 {
		r.Value = m.Payload
		if r.Value == nil {
			r.Value = []byte{}
		}
	}
	r.Headers = make([]event.Header, d.count())
	for i := range r.Headers {
		r.Headers[i] = event.Header{Key: string(d.bytes()), Value: d.bytes()}
	}
	if d.bad {
		return event.Record{}, errNoRecord
	}
	return r, nil
}

func nilFlag(b []byte) int64 {
	if b == nil {
		return 1
	}
	return 0
}

// appendBytes writes length+1 and the bytes, and 0 for nil: Kafka tells a nil header value from an empty one.
func appendBytes(b, part []byte) []byte {
	if part == nil {
		return binary.AppendUvarint(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(part))+1), part...)
}

// decoder reads what Message wrote. After the first mistake every answer is zero and bad is set.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	d.advance(n)
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	d.advance(n)
	return v
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if d.bad || n == 0 {
		return nil
	}
	if n-1 > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	part := d.rest[: n-1 : n-1]
	d.rest = d.rest[n-1:]
	return part
}

// count reads a number of headers. Each takes at least two bytes, so damaged input cannot ask for a huge slice.
func (d *decoder) count() int {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.rest)/2) {
		d.bad = d.bad || n > 0
		return 0
	}
	return int(n)
}

func (d *decoder) advance(n int) {
	if n <= 0 || d.bad {
		d.bad, d.rest = true, nil
		return
	}
	d.rest = d.rest[n:]
}
