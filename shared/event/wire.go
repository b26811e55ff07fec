package event

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Header is one record header. Kafka allows repeated keys and nil values, so headers are a list and not a map.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// The header names of a CloudEvent in Kafka's binary mode, and those of our extensions.
const (
	headerSpecVersion      = "ce_specversion"
	headerID               = "ce_id"
	headerType             = "ce_type"
	headerSource           = "ce_source"
	headerSubject          = "ce_subject"
	headerTime             = "ce_time"
	headerDataSchema       = "ce_dataschema"
	headerVersion          = "ce_eventversion"
	headerAggregateType    = "ce_aggregatetype"
	headerAggregateVersion = "ce_aggregateversion"
	headerContentType      = "content-type"
	headerTraceParent      = "traceparent"

	// ReplayHeader names the replay that sent a record once more. It is no part of the event: the hash does not know it.
	ReplayHeader = "paycast-replay"

	specVersion = "1.0"
	contentType = "application/json"
)

// Why a record cannot be handled. Each is a reason to park the record, byte for byte; none is a reason to retry.
var (
	ErrUndecodable        = errors.New("not an event")
	ErrUnknownType        = errors.New("unknown event type")
	ErrUnsupportedVersion = errors.New("unsupported event version")
)

// Headers are the event's record headers, in a fixed order. There is no header of any library among them.
func (e Event) Headers() []Header {
	hs := []Header{
		{headerSpecVersion, []byte(specVersion)},
		{headerID, []byte(e.ID)},
		{headerType, []byte(e.Type)},
		{headerSource, []byte(e.Source)},
		{headerSubject, []byte(e.AggregateID)},
		{headerTime, []byte(e.Time.UTC().Format(time.RFC3339Nano))},
		{headerDataSchema, fmt.Appendf(nil, "/schemas/%s/%d", e.Type, e.Version)},
		{headerVersion, []byte(strconv.Itoa(e.Version))},
		{headerAggregateType, []byte(e.AggregateType)},
		{headerAggregateVersion, []byte(strconv.FormatInt(e.AggregateVersion, 10))},
		{headerContentType, []byte(contentType)},
	}
	if e.TraceParent != "" {
		hs = append(hs, Header{headerTraceParent, []byte(e.TraceParent)})
	}
	return hs
}

// Record is what arrived from Kafka, untouched. A nil Value is a tombstone, which an event never is.
type Record struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	Key       []byte    `json:"key"`
	Value     []byte    `json:"value"`
	Headers   []Header  `json:"headers"`
}

// Decode reads an event from a record. The error is ErrUndecodable, ErrUnknownType or ErrUnsupportedVersion (wrapped);
// its text holds no payload. With the latter two the event is returned as far as it could be read, so that it can be
// parked under its id. Decode is deterministic: the same bytes always give the same answer.
func Decode(r Record) (Event, error) {
	h := make(map[string]string, len(r.Headers))
	for _, kv := range r.Headers {
		if _, twice := h[kv.Key]; twice && len(kv.Key) > 3 && kv.Key[:3] == "ce_" {
			return Event{}, fmt.Errorf("%w: header %s is given twice", ErrUndecodable, kv.Key)
		}
		h[kv.Key] = string(kv.Value)
	}
	e := Event{
		ID: h[headerID], Type: h[headerType], Source: h[headerSource], AggregateType: h[headerAggregateType],
		AggregateID: h[headerSubject], TraceParent: h[headerTraceParent], Payload: r.Value,
	}
	var bad []error
	fail := func(format string, args ...any) {
		bad = append(bad, fmt.Errorf(format, args...))
	}
	if len(r.Value) == 0 {
		fail("empty value")
	}
	if h[headerSpecVersion] != specVersion {
		fail("header %s is not %s", headerSpecVersion, specVersion)
	}
	for _, name := range []string{headerID, headerType, headerSource, headerSubject, headerAggregateType} {
		if h[name] == "" {
			fail("header %s is missing", name)
		}
		if len(h[name]) > 128 {
			fail("header %s is longer than 128 bytes", name)
		}
		if !utf8.ValidString(h[name]) || strings.ContainsRune(h[name], 0) {
			fail("header %s is not text", name) // no database would take it
		}
	}
	if len(e.ID) > 64 {
		fail("header %s is longer than 64 bytes", headerID)
	}
	if string(r.Key) != e.AggregateID {
		fail("record key is not %s", headerSubject)
	}
	var err error
	if e.Version, err = strconv.Atoi(h[headerVersion]); err != nil || e.Version < 1 {
		fail("header %s is not a positive number", headerVersion)
	}
	if e.AggregateVersion, err = strconv.ParseInt(h[headerAggregateVersion], 10, 64); err != nil || e.AggregateVersion < 1 {
		fail("header %s is not a positive number", headerAggregateVersion)
	}
	if e.Time, err = time.Parse(time.RFC3339Nano, h[headerTime]); err != nil {
		fail("header %s is not a time", headerTime)
	}
	if len(bad) > 0 {
		return Event{}, fmt.Errorf("%w: %w", ErrUndecodable, errors.Join(bad...))
	}
	newest, ok := known[e.Type]
	if !ok {
		return e, ErrUnknownType
	}
	if e.Version > newest {
		return e, fmt.Errorf("%w: %s v%d, this build knows up to v%d", ErrUnsupportedVersion, e.Type, e.Version, newest)
	}
	return e, nil
}
