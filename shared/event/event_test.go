package event_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/paycast/shared/event"
)

func paid() event.Event {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	payload, err := json.Marshal(event.Order{
		OrderNo: "O1", UserID: "u1", Title: "tea", Amount: 990, Currency: "EUR", Status: event.StatusPaid, Version: 2,
		PreviousStatus: event.StatusCreated, CreatedAt: at, OccurredAt: at, TradeNo: "T1", PaidAt: &at,
	})
	if err != nil {
		panic(err)
	}
	return event.Event{
		ID: event.NewID(event.PaymentSucceeded, "O1", "T1"), Type: event.PaymentSucceeded, Version: 1, Source: "/payment",
		AggregateType: event.AggregateOrder, AggregateID: "O1", AggregateVersion: 2, Time: at, Payload: payload,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func record(e event.Event) event.Record {
	return event.Record{Topic: event.Topic, Key: []byte(e.AggregateID), Value: e.Payload, Headers: e.Headers()}
}

func TestAnEventSurvivesTheWireUnchanged(t *testing.T) {
	t.Parallel()
	got, err := event.Decode(record(paid()))
	require.NoError(t, err)
	require.Equal(t, paid(), got)
	require.Equal(t, paid().Hash(), got.Hash())
}

func TestTheSameFactHasTheSameIDForEver(t *testing.T) {
	t.Parallel()
	// The literal keeps the name space and the encoding from changing: an old event would become a new one.
	require.Equal(t, "4816ef23-c018-5cdb-b994-07f3cbaa888d", event.NewID(event.PaymentSucceeded, "O1", "T1"))
	require.NotEqual(t, event.NewID("ab", "c", "d"), event.NewID("a", "bc", "d"))
}

func TestAnyChangeOfTheFactChangesTheHashAndATraceDoesNot(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*event.Event){
		"type":              func(e *event.Event) { e.Type = event.OrderCanceled },
		"version":           func(e *event.Event) { e.Version = 2 },
		"aggregate":         func(e *event.Event) { e.AggregateID = "O2" },
		"aggregate version": func(e *event.Event) { e.AggregateVersion = 3 },
		"one payload byte":  func(e *event.Event) { e.Payload = append(append([]byte{}, e.Payload...), ' ') },
	}
	for name, change := range changes {
		e := paid()
		change(&e)
		require.NotEqual(t, paid().Hash(), e.Hash(), name)
	}
	e := paid()
	e.TraceParent = ""
	require.Equal(t, paid().Hash(), e.Hash())
}

func TestWhatIsNotAnEventIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	replace := func(key, value string) func(*event.Record) {
		return func(r *event.Record) {
			for i := range r.Headers {
				if r.Headers[i].Key == key {
					r.Headers[i].Value = []byte(value)
				}
			}
		}
	}
	cases := map[string]struct {
		change func(*event.Record)
		want   error
	}{
		"tombstone":             {func(r *event.Record) { r.Value = nil }, event.ErrUndecodable},
		"empty value":           {func(r *event.Record) { r.Value = []byte{} }, event.ErrUndecodable},
		"no headers":            {func(r *event.Record) { r.Headers = nil }, event.ErrUndecodable},
		"no id":                 {replace("ce_id", ""), event.ErrUndecodable},
		"key is another order":  {func(r *event.Record) { r.Key = []byte("O2") }, event.ErrUndecodable},
		"version zero":          {replace("ce_aggregateversion", "0"), event.ErrUndecodable},
		"version is text":       {replace("ce_eventversion", "one"), event.ErrUndecodable},
		"time is text":          {replace("ce_time", "yesterday"), event.ErrUndecodable},
		"id given twice":        {func(r *event.Record) { r.Headers = append(r.Headers, event.Header{Key: "ce_id", Value: []byte("x")}) }, event.ErrUndecodable},
		"unknown type":          {replace("ce_type", "OrderShipped"), event.ErrUnknownType},
		"newer payload version": {replace("ce_eventversion", "2"), event.ErrUnsupportedVersion},
	}
	for name, c := range cases {
		r := record(paid())
		c.change(&r)
		got, err := event.Decode(r)
		require.ErrorIs(t, err, c.want, name)
		if !errors.Is(err, event.ErrUndecodable) {
			require.Equal(t, paid().ID, got.ID, name)
		}
	}
}

func TestAForeignHeaderAndUnknownFieldsAreAccepted(t *testing.T) {
	t.Parallel()
	r := record(paid())
	r.Headers = append(r.Headers, event.Header{Key: "x-replay", Value: nil}, event.Header{Key: "x-replay", Value: []byte("2")})
	r.Value = append(r.Value[:len(r.Value)-1:len(r.Value)-1], []byte(`,"colour":"green"}`)...)
	e, err := event.Decode(r)
	require.NoError(t, err)
	o, err := e.Order()
	require.NoError(t, err)
	require.Equal(t, int64(990), o.Amount)
}

func TestAPayloadThatContradictsItsHeadersIsNotAnOrder(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{
		"other order":   `{"order_no":"O2","user_id":"u","amount":1,"currency":"EUR","status":"PAID","version":2}`,
		"other version": `{"order_no":"O1","user_id":"u","amount":1,"currency":"EUR","status":"PAID","version":3}`,
		"no amount":     `{"order_no":"O1","user_id":"u","currency":"EUR","status":"PAID","version":2}`,
		"a fraction":    `{"order_no":"O1","user_id":"u","amount":1.5,"currency":"EUR","status":"PAID","version":2}`,
		"not JSON":      `{`,
	} {
		e := paid()
		e.Payload = []byte(payload)
		_, err := e.Order()
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), `"u"`, name)
	}
}

func TestDecodeNeverPanicsAndAlwaysAnswersTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"ce_id", "ce_type", "ce_specversion", "ce_subject", "ce_eventversion", "ce_time", "x", ""})
		r := record(paid())
		for range rapid.IntRange(0, 4).Draw(t, "extra headers") {
			r.Headers = append(r.Headers, event.Header{Key: names.Draw(t, "name"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value")})
		}
		if rapid.Bool().Draw(t, "drop") {
			r.Headers = r.Headers[rapid.IntRange(0, len(r.Headers)).Draw(t, "from"):]
		}
		r.Value = rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		first, err1 := event.Decode(r)
		second, err2 := event.Decode(r)
		require.Equal(t, first, second)
		require.Equal(t, err1 == nil, err2 == nil)
		if err1 == nil {
			_, _ = first.Order() // any answer will do, as long as there is one
		}
	})
}
