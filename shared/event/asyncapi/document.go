package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.com/paycast/shared/event"
)

const heading = "# Generated from the event package by `go run ./event/asyncapi ../docs` in shared/. Do not edit.\n"

// generate returns the content of each file by its path below docs/.
func generate() (map[string][]byte, error) {
	files := map[string][]byte{}
	messages, all := object{}, object{}
	for _, eventType := range slices.Sorted(maps.Keys(event.Catalogue())) {
		version := event.Catalogue()[eventType]
		schema, err := payloadSchema(eventType, version)
		if err != nil {
			return nil, err
		}
		encoded, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			return nil, err
		}
		file := strings.TrimPrefix(dataSchema(eventType, version), "/") + ".json"
		files[file] = append(encoded, '\n')
		messages[eventType] = message(eventType, version, "./"+file)
		all[eventType] = object{"$ref": "#/components/messages/" + eventType}
	}
	var out bytes.Buffer
	out.WriteString(heading)
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(document(messages, all)); err != nil {
		return nil, err
	}
	files["asyncapi.yaml"] = out.Bytes()
	return files, encoder.Close()
}

func document(messages, all object) object {
	return object{
		"asyncapi": "3.0.0",
		"info": object{
			"title":   "paycast events",
			"version": "1.0.0",
			"license": object{"name": "Apache-2.0"},
			"description": "Facts about orders, as CloudEvents in Kafka's binary mode. Delivery is at least once: a consumer tells a " +
				"repetition by ce_id, and an old fact from a new one by ce_aggregateversion. Events of one order have its number as " +
				"their key and so share a partition; first copies leave in version order, repetitions may come later. " +
				"Unknown fields are to be accepted; unknown types and newer major versions are to be put aside.",
		},
		"defaultContentType": "application/json",
		"channels": object{
			"orderEvents": object{
				"address": event.Topic, "messages": all,
				"description": "All events of all orders.",
				"bindings":    kafkaTopic(),
			},
			"redelivery": object{
				"address": event.RedeliveryTopic("{group}"), "messages": all,
				"description": "Events that are sent again to one consumer group, with the id, key, headers and bytes of the first time.",
				"parameters":  object{"group": object{"description": "the consumer group"}},
				"bindings":    kafkaTopic(),
			},
		},
		"operations": object{
			"publish":   object{"action": "send", "channel": object{"$ref": "#/channels/orderEvents"}, "summary": "The producer's relay publishes what its outbox holds."},
			"consume":   object{"action": "receive", "channel": object{"$ref": "#/channels/orderEvents"}, "summary": "Every group receives every event."},
			"redeliver": object{"action": "receive", "channel": object{"$ref": "#/channels/redelivery"}, "summary": "A group receives again what was replayed for it alone."},
		},
		"components": object{"messages": messages},
	}
}

func kafkaTopic() object {
	return object{"kafka": object{"partitions": event.Partitions, "bindingVersion": "0.5.0"}}
}

func message(eventType string, version int, schema string) object {
	return object{
		"name": eventType, "title": eventType, "summary": stories[eventType].summary,
		"headers": headerSchema(eventType, version),
		"payload": object{"$ref": schema},
		"bindings": object{"kafka": object{
			"key":            object{"type": "string", "description": "the order number, as in ce_subject"},
			"bindingVersion": "0.5.0",
		}},
	}
}

// headerSchema compares two events of the type that differ in all that may differ: a header with the same value in both
// is a constant. One that an event without a trace lacks is not required.
func headerSchema(eventType string, version int) object {
	one := event.Event{
		ID: "1", Type: eventType, Version: version, Source: "/1", AggregateType: event.AggregateOrder,
		AggregateID: "1", AggregateVersion: 1, Time: time.Unix(1, 0), TraceParent: "1",
	}
	other := event.Event{
		ID: "2", Type: eventType, Version: version, Source: "/2", AggregateType: event.AggregateOrder,
		AggregateID: "2", AggregateVersion: 2, Time: time.Unix(2, 0),
	}
	second := map[string]string{}
	var required []string
	for _, h := range other.Headers() {
		second[h.Key] = string(h.Value)
		required = append(required, h.Key)
	}
	properties := object{}
	for _, h := range one.Headers() {
		property := object{"type": "string"}
		if second[h.Key] == string(h.Value) {
			property["const"] = string(h.Value)
		}
		if about, ok := aboutHeader[h.Key]; ok {
			property["description"] = about
		}
		properties[h.Key] = property
	}
	return object{"type": "object", "properties": properties, "required": required}
}

var aboutHeader = map[string]string{
	"ce_id":               "the same for every copy of the event, whatever its road",
	"ce_source":           "the producer, as a URI reference",
	"ce_subject":          "the order number",
	"ce_time":             "when it happened, RFC 3339, UTC",
	"ce_aggregateversion": "the order's version, from 1 without gaps, in decimal",
	"traceparent":         "W3C trace context of the request that caused the event; may be absent",
}
