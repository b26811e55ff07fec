// Package doctor checks that settings of different parts fit together, where no part alone can see it.
//
//	every process ──GET /ops/settings, /readyz──▶ Facts ──Check──▶ Findings, each with its arithmetic
//	Kafka ──topics as the brokers have them─────▶
//
// Promise: Check is a function of the facts and of nothing else, a rule that could not be checked is a bad one, and each
// rule has a configuration in the tests that fails it.
//
// The package does not own the settings. What would break a promise and one process can see alone, it refuses at its own
// start; such rules are checked here again by the same code, on what really runs.
package doctor

import (
	"time"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/settings"
)

// Facts are all that the rules know.
type Facts struct {
	Processes []Process
	Topics    []kafka.TopicSettings
	Brokers   map[int32]string // whether each makes topics that somebody uses; see kafka.MakesTopics
	KafkaErr  error            // why Kafka could not be asked for either
	Horizon   time.Duration    // how far back a replay from Kafka may reach
	Tolerance time.Duration    // how far clocks may be apart
}

// Process is one process as it answered.
type Process struct {
	Name   string
	NotOK  []string // readiness checks that fail
	Err    error    // why it could not be asked; then the rest is empty
	Report settings.Report

	Ahead     time.Duration // of its clock before ours
	RoundTrip time.Duration // Ahead is right to half of it
}

// Finding is one rule applied to one thing.
type Finding struct {
	Rule       string `json:"rule"`
	Of         string `json:"of"`
	Arithmetic string `json:"arithmetic"`
	OK         bool   `json:"ok"`
	Note       bool   `json:"note,omitempty"`      // when bad: work is wasted, and no promise is broken
	Otherwise  string `json:"otherwise,omitempty"` // when bad: what goes wrong, and what to do
}

// Topics are those that the processes use.
func Topics(processes []Process) (all []string) {
	seen := map[string]bool{}
	for _, p := range processes {
		for _, g := range p.Report.Groups {
			for _, topic := range g.Topics {
				if !seen[topic] {
					seen[topic] = true
					all = append(all, topic)
				}
			}
		}
	}
	return all
}
