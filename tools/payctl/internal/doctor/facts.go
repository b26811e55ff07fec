// Package doctor checks that settings of different parts fit together, where no part alone can see it.
//
//	every process ──GET /ops/settings, /readyz──▶ Facts ──Check──▶ Findings, each with its arithmetic
//	Kafka ──topics as the brokers have them─────▶
//
// Promise: Check is a function of the facts and of nothing else, a rule that could not be checked is a bad one, and each
// rule has a configuration in the tests that fails it.
//
// The package does not own the settings, nor the rules that one process can check alone: those are in shared/settings,
// which each process applies to itself after its start, and which are applied here again.
package doctor

import (
	"time"

	"example.com/paycast/shared/settings"
)

// Facts are all that the rules know.
type Facts struct {
	Processes []Process
	Kafka     settings.Kafka
	KafkaErr  error         // why Kafka could not be asked
	Horizon   time.Duration // how far back a replay from Kafka may reach
	Tolerance time.Duration // how far clocks may be apart
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

// Topics are those that the processes use.
func Topics(processes []Process) []string {
	var all settings.Report
	for _, p := range processes {
		all.Groups = append(all.Groups, p.Report.Groups...)
	}
	return all.Topics()
}
