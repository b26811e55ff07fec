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
	b = appendText(b, r.Topic)
	b = appendBytes(b, r.Key)
	b = binary.AppendVarint(b, nilFlag(r.Value)) // a tombstone must not become an empty value
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		b = appendText(b, h.Key)
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
	d := decoder{text: packed, raw: []byte(packed)}
	r := event.Record{Partition: int32(d.varint()), Offset: d.varint(), Time: time.Unix(0, d.varint()).UTC()}
	r.Topic = d.string()
	r.Key = d.bytes()
	if d.varint() == 0 {
		r.Value = m.Payload
		if r.Value == nil {
			r.Value = []byte{}
		}
	}
	r.Headers = make([]event.Header, d.count())
	for i := range r.Headers {
		r.Headers[i] = event.Header{Key: d.string(), Value: d.bytes()}
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

// appendText writes what appendBytes does, without a copy of the text.
func appendText(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))+1), part...)
}

// decoder reads what Message wrote. After the first mistake every answer is zero and bad is set. Text and bytes are parts
// of the two copies it holds: a dozen headers would otherwise be two dozen allocations of each message.
type decoder struct {
	text string
	raw  []byte
	at   int
	bad  bool
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.raw[d.at:])
	d.advance(n)
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.raw[d.at:])
	d.advance(n)
	return v
}

func (d *decoder) bytes() []byte {
	begin, end, ok := d.part()
	if !ok {
		return nil
	}
	return d.raw[begin:end:end]
}

func (d *decoder) string() string {
	begin, end, _ := d.part()
	return d.text[begin:end]
}

// part steps over what appendBytes wrote; ok is false for nil.
func (d *decoder) part() (begin, end int, ok bool) {
	n := d.uvarint()
	if d.bad || n == 0 {
		return 0, 0, false
	}
	if n-1 > uint64(len(d.raw)-d.at) {
		d.bad = true
		return 0, 0, false
	}
	begin = d.at
	d.at += int(n - 1)
	return begin, d.at, true
}

// count reads a number of headers. Each takes at least two bytes, so damaged input cannot ask for a huge slice.
func (d *decoder) count() int {
	n := d.uvarint()
	if d.bad || n > uint64((len(d.raw)-d.at)/2) {
		d.bad = d.bad || n > 0
		return 0
	}
	return int(n)
}

func (d *decoder) advance(n int) {
	if n <= 0 || d.bad {
		d.bad, d.at = true, len(d.raw)
		return
	}
	d.at += n
}
