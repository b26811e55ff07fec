package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"
)

// envelope has the fields of the forwarder's own envelope type, which is not exported: its destination, and the message
// to be sent there. A test fails when an upgrade changes them.
type envelope struct {
	DestinationTopic string

	UUID     string
	Payload  []byte
	Metadata map[string]string
}

// envelopeCodec is the forwarder's Marshaler. JSON, its default, would code every payload in base64 and took 18 % of the
// relay's time.
type envelopeCodec struct{}

var errEnvelope = errors.New("not an envelope of the outbox")

// Marshal takes our envelope; the forwarder's own publisher, which would bring the other, has no part here.
func (envelopeCodec) Marshal(v any) ([]byte, error) {
	e, ok := v.(*envelope)
	if !ok {
		return nil, fmt.Errorf("marshaling %T: %w", v, errEnvelope)
	}
	size := len(e.DestinationTopic) + len(e.UUID) + len(e.Payload) + 4*binary.MaxVarintLen64
	for k, v := range e.Metadata {
		size += len(k) + len(v) + 2*binary.MaxVarintLen64
	}
	b := make([]byte, 0, size)
	b = appendPart(b, e.DestinationTopic)
	b = appendPart(b, e.UUID)
	b = binary.AppendUvarint(b, uint64(len(e.Metadata)))
	for k, v := range e.Metadata {
		b = appendPart(b, k)
		b = appendPart(b, v)
	}
	return append(b, e.Payload...), nil
}

// Unmarshal fills the forwarder's envelope or ours. The payload is a part of data, not a copy.
func (envelopeCodec) Unmarshal(data []byte, v any) error {
	var e envelope
	var ok bool
	if e.DestinationTopic, data, ok = cutPart(data); !ok {
		return errEnvelope
	}
	if e.UUID, data, ok = cutPart(data); !ok {
		return errEnvelope
	}
	n, width := binary.Uvarint(data)
	if width <= 0 || n > uint64(len(data)) {
		return errEnvelope
	}
	data = data[width:]
	e.Metadata = make(map[string]string, n)
	for range n {
		var k, v string
		if k, data, ok = cutPart(data); !ok {
			return errEnvelope
		}
		if v, data, ok = cutPart(data); !ok {
			return errEnvelope
		}
		e.Metadata[k] = v
	}
	e.Payload = data
	return e.into(v)
}

// into copies e to the forwarder's envelope or ours, field by field: asking reflection whether the types convert compares
// them anew for each message, and cost a tenth of the relay's time.
func (e *envelope) into(v any) error {
	to := reflect.ValueOf(v)
	if to.Kind() != reflect.Pointer || to.Elem().Kind() != reflect.Struct || to.Elem().NumField() != 4 {
		return fmt.Errorf("unmarshaling into %T: %w", v, errEnvelope)
	}
	to = to.Elem()
	to.Field(0).SetString(e.DestinationTopic)
	to.Field(1).SetString(e.UUID)
	to.Field(2).SetBytes(e.Payload)
	to.Field(3).Set(reflect.ValueOf(e.Metadata))
	return nil
}

func appendPart(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutPart(b []byte) (part string, rest []byte, ok bool) {
	n, width := binary.Uvarint(b)
	if width <= 0 || n > uint64(len(b)-width) {
		return "", nil, false
	}
	return string(b[width : width+int(n)]), b[width+int(n):], true
}

// wrap puts m into an envelope for the forwarder. One without a destination the forwarder would only nack: no answer, for ever.
func wrap(destination string, m *message.Message) (*message.Message, error) {
	if destination == "" {
		return nil, errEnvelope
	}
	data, err := envelopeCodec{}.Marshal(&envelope{destination, m.UUID, m.Payload, m.Metadata})
	if err != nil {
		return nil, err
	}
	out := message.NewMessage(m.UUID, data)
	out.SetContext(m.Context())
	return out, nil
}
