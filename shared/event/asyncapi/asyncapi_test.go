package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"example.com/paycast/shared/event"
)

const docs = "../../../docs"

func TestTheCommittedContractIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	files, err := generate()
	require.NoError(t, err)
	require.Len(t, files, 1+len(event.Catalogue()))
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(docs, name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is stale: run `go run ./event/asyncapi ../docs` in shared/", name)
	}
	require.NoError(t, filepath.WalkDir(filepath.Join(docs, "schemas"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, relErr := filepath.Rel(docs, path)
			require.NoError(t, relErr)
			require.Contains(t, files, filepath.ToSlash(rel), "no event has this schema any more")
		}
		return err
	}))
}

func TestEveryReferenceInTheDocumentLeadsSomewhere(t *testing.T) {
	t.Parallel()
	files, err := generate()
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, yaml.Unmarshal(files["asyncapi.yaml"], &doc))
	seen := 0
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			if ref, ok := node["$ref"].(string); ok {
				seen++
				if path, inside := strings.CutPrefix(ref, "#/"); inside {
					var at any = doc
					for step := range strings.SplitSeq(path, "/") {
						at = at.(map[string]any)[step]
						require.NotNil(t, at, ref)
					}
				} else {
					require.Contains(t, files, strings.TrimPrefix(ref, "./"))
				}
			}
			for _, child := range node {
				walk(child)
			}
		case []any:
			for _, child := range node {
				walk(child)
			}
		}
	}
	walk(doc)
	require.Positive(t, seen)
}

// check holds an event's payload against the committed schema that its own header names.
func check(t testing.TB, e event.Event) error {
	t.Helper()
	var path string
	for _, h := range e.Headers() {
		if h.Key == "ce_dataschema" {
			path = string(h.Value)
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile(filepath.Join(docs, filepath.FromSlash(path)+".json"))
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Payload))
	require.NoError(t, err)
	return schema.Validate(value)
}

func newEvent(eventType string, o event.Order, extra map[string]any) event.Event {
	payload, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	if extra != nil {
		var fields map[string]any
		_ = json.Unmarshal(payload, &fields) // it was encoded just now
		for key, value := range extra {
			if fields[key] = value; value == nil {
				delete(fields, key)
			}
		}
		payload, _ = json.Marshal(fields)
	}
	return event.Event{
		ID: "1", Type: eventType, Version: 1, Source: "/test", AggregateType: event.AggregateOrder,
		AggregateID: o.OrderNo, AggregateVersion: o.Version, Time: o.OccurredAt, Payload: payload,
	}
}

var at = time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.UTC)

func plain(status, previous string, version int64) event.Order {
	return event.Order{
		OrderNo: "O1", UserID: "u1", Title: "Tea", Amount: 990, Currency: "EUR", Status: status, Version: version,
		PreviousStatus: previous, CreatedAt: at, OccurredAt: at,
	}
}

func paid(status, previous string, version int64) event.Order {
	o := plain(status, previous, version)
	o.TradeNo, o.PaidAt = "T1", &at
	return o
}

func TestPayloadsOfEveryEventFitTheSchemaAndAreUnderstood(t *testing.T) {
	t.Parallel()
	events := []event.Event{
		newEvent(event.OrderCreated, plain(event.StatusCreated, "", 1), nil),
		newEvent(event.PaymentSucceeded, paid(event.StatusPaid, event.StatusCreated, 2), nil),
		newEvent(event.OrderCanceled, plain(event.StatusCanceled, event.StatusCreated, 2), nil),
		newEvent(event.OrderCanceled, paid(event.StatusCanceled, event.StatusPaid, 3), nil),
		newEvent(event.OrderClosed, plain(event.StatusClosed, event.StatusCreated, 2), nil),
		newEvent(event.OrderClosed, plain(event.StatusClosed, event.StatusCreated, 2), map[string]any{"added_later": true}),
	}
	types := map[string]bool{}
	for _, e := range events {
		types[e.Type] = true
		require.NoError(t, check(t, e), "%s %s", e.Type, e.Payload)
		_, err := e.Order()
		require.NoError(t, err)
	}
	require.Len(t, types, len(event.Catalogue()), "every type has an example here")
}

func TestPayloadsThatContradictTheEventDoNotFit(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]event.Event{
		"a payment without its trade number":    newEvent(event.PaymentSucceeded, plain(event.StatusPaid, event.StatusCreated, 2), nil),
		"a payment of an order that was closed": newEvent(event.PaymentSucceeded, paid(event.StatusPaid, event.StatusClosed, 2), nil),
		"a paid cancellation without paid_at":   newEvent(event.OrderCanceled, plain(event.StatusCanceled, event.StatusPaid, 3), nil),
		"another state than the event's":        newEvent(event.OrderCreated, plain(event.StatusPaid, "", 1), nil),
		"no amount":                             newEvent(event.OrderCreated, plain(event.StatusCreated, "", 1), map[string]any{"amount": 0}),
		"an amount as text":                     newEvent(event.OrderCreated, plain(event.StatusCreated, "", 1), map[string]any{"amount": "990"}),
		"a currency that is none":               newEvent(event.OrderCreated, plain(event.StatusCreated, "", 1), map[string]any{"currency": "euro"}),
		"no user":                               newEvent(event.OrderCreated, plain(event.StatusCreated, "", 1), map[string]any{"user_id": nil}),
		"a time that is none":                   newEvent(event.OrderCreated, plain(event.StatusCreated, "", 1), map[string]any{"occurred_at": "today"}),
	} {
		require.Error(t, check(t, e), name)
	}
}
