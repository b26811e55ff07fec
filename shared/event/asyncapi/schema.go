package main

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"example.com/paycast/shared/event"
)

// object is a piece of JSON Schema or of AsyncAPI. Encoders write its keys in order, so the output is always the same.
type object map[string]any

// story is what the Go types do not say about an event.
type story struct {
	summary  string
	status   string   // of the order after the event
	previous []string // and before it
	payment  bool     // the event is only possible when the order is paid
}

// stories has one entry for each type of the catalogue.
var stories = map[string]story{
	event.OrderCreated:     {"An order was made. Nothing is paid yet.", event.StatusCreated, []string{""}, false},
	event.PaymentSucceeded: {"The provider has the money. Happens at most once to an order.", event.StatusPaid, []string{event.StatusCreated}, true},
	event.OrderCanceled: {
		"The order is cancelled. Where previous_status is PAID, money has to go back.",
		event.StatusCanceled, []string{event.StatusCreated, event.StatusPaid}, false,
	},
	event.OrderClosed: {"The order was given up before it was paid.", event.StatusClosed, []string{event.StatusCreated}, false},
}

// rules are what holds for single fields beyond their type.
var rules = map[string]object{
	"order_no":    {"minLength": 1, "maxLength": 128},
	"user_id":     {"minLength": 1, "maxLength": 128},
	"currency":    {"pattern": "^[A-Z]{3}$", "description": "ISO 4217"},
	"amount":      {"minimum": 1, "description": "in minor units of the currency"},
	"version":     {"minimum": 1, "description": "of the order: from 1, without gaps; the header ce_aggregateversion says the same"},
	"occurred_at": {"description": "when the event happened, by the producer's database"},
	"trade_no":    {"minLength": 1, "maxLength": 128, "description": "the provider's number of the payment; there once the order is paid"},
	"paid_at":     {"description": "when the customer paid, by the provider; there once the order is paid"},
}

// payloadSchema describes the payload of an event type. Unknown fields are allowed: later producers may add some.
func payloadSchema(eventType string, version int) (object, error) {
	s, ok := stories[eventType]
	if !ok {
		return nil, fmt.Errorf("%s is in the catalogue and has no story", eventType)
	}
	properties, required, err := fields(reflect.TypeFor[event.Order]())
	if err != nil {
		return nil, err
	}
	properties["status"] = object{"const": s.status}
	properties["previous_status"] = object{"enum": s.previous}
	schema := object{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         dataSchema(eventType, version),
		"title":       eventType,
		"description": s.summary + " The payload is the whole order as of the event.",
		"type":        "object",
		"properties":  properties,
	}
	payment := []string{"trade_no", "paid_at"}
	switch {
	case s.payment:
		required = append(required, payment...)
	case len(s.previous) > 1: // only some of them were paid
		schema["if"] = object{"properties": object{"previous_status": object{"const": event.StatusPaid}}}
		schema["then"] = object{"required": payment}
	}
	schema["required"] = required
	return schema, nil
}

// dataSchema is the path in the header ce_dataschema.
func dataSchema(eventType string, version int) string {
	for _, h := range (event.Event{Type: eventType, Version: version}).Headers() {
		if h.Key == "ce_dataschema" {
			return string(h.Value)
		}
	}
	return ""
}

// fields reads a struct's JSON fields. Those with omitempty are not required.
func fields(t reflect.Type) (properties object, required []string, err error) {
	properties = object{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		property := object{}
		switch {
		case kind == reflect.TypeFor[time.Time]():
			property["type"], property["format"] = "string", "date-time"
		case kind.Kind() == reflect.String:
			property["type"] = "string"
		case kind.Kind() == reflect.Int64:
			property["type"] = "integer"
		default:
			return nil, nil, fmt.Errorf("field %s has type %s, which this generator does not know", f.Name, f.Type)
		}
		for key, value := range rules[name] {
			property[key] = value
		}
		properties[name] = property
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	return properties, required, nil
}
