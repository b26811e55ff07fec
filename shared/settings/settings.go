// Package settings is what processes say of how they really run, so far as a promise depends on settings that fit
// together: a lease and a deadline, a retention here and a replay there, a client's acks.
//
//	mechanism ──Process.Settings──▶ Report ──GET /ops/settings──▶ payctl doctor ──▶ Check ──▶ Findings
//	                                  └──once, after the start──▶ service.Process ──▶ Check ──▶ Findings
//
// Promise: what is reported is read from what is in use, the client's own configuration or the database's own answer,
// and not from what somebody meant to configure. No secret is in it. A rule is a function of the report and of what Kafka
// says, and shows its arithmetic.
//
// The package does not own the rules between processes, which are doctor's, and refuses nothing: a mechanism refuses at
// the start what it cannot work with.
package settings

import (
	"context"
	"slices"
	"time"

	"example.com/paycast/shared/lease"
)

// Report is the answer of one process. Each mechanism in it appends what it runs with.
type Report struct {
	Process   string     `json:"process"`
	Now       time.Time  `json:"now"` // the process's clock
	Leases    []Lease    `json:"leases,omitempty"`
	Producers []Producer `json:"producers,omitempty"`
	Groups    []Group    `json:"groups,omitempty"`
	Windows   []Window   `json:"windows,omitempty"`
	Databases []Database `json:"databases,omitempty"`

	Horizon Duration `json:"replay_horizon,omitempty"` // how far back a replay may reach, where it is known

	// Kafka asks the brokers how they are set and how they have the topics, those of Groups among them. It is apart from
	// the rest, which must be told without Kafka too; nil in a process that promises nothing about Kafka.
	Kafka func(context.Context) (Kafka, error) `json:"-"`
}

// Topics are those of the groups, each once.
func (r Report) Topics() (all []string) {
	for _, g := range r.Groups {
		for _, topic := range g.Topics {
			if !slices.Contains(all, topic) {
				all = append(all, topic)
			}
		}
	}
	return all
}

// Kafka is what the brokers say.
type Kafka struct {
	Topics  []Topic
	Brokers map[int32]string // whether each makes topics that somebody uses, in its own words; empty: it does not tell
}

// Topic is a topic as the brokers have it.
type Topic struct {
	Topic      string
	Partitions int
	Cleanup    string        // cleanup.policy: delete, compact or both
	Retention  time.Duration // negative: for ever
}

// Lease is what holds a claim.
type Lease struct {
	Of       string   `json:"of"` // what is claimed
	Lease    Duration `json:"lease"`
	Deadline Duration `json:"deadline"`
	Margin   Duration `json:"margin"`
}

// LeaseOf reports a rule.
func LeaseOf(what string, r lease.Rule) Lease {
	return Lease{what, Duration(r.Lease), Duration(r.Deadline), Duration(r.Margin)}
}

// Rule is the way back.
func (l Lease) Rule() lease.Rule {
	return lease.Rule{Lease: time.Duration(l.Lease), Deadline: time.Duration(l.Deadline), Margin: time.Duration(l.Margin)}
}

// Producer is a client that publishes.
type Producer struct {
	Acks         string `json:"acks"` // all, leader or none
	Idempotent   bool   `json:"idempotent"`
	OpenRequests int    `json:"open_requests"`
	MakesTopics  bool   `json:"makes_topics"` // by using them
}

// Group is a member of a consumer group.
type Group struct {
	Group    string   `json:"group"`
	Topics   []string `json:"topics"`
	Initial  string   `json:"offsets_initial"` // oldest or newest: where a group without offsets begins
	Reset    bool     `json:"reset_invalid"`   // whether an offset that is out of range is jumped over
	Session  Duration `json:"session_timeout"`
	Rejoin   Duration `json:"rebalance_timeout"` // a member that is not back by then is thrown out
	Deadline Duration `json:"handler_deadline"`

	MakesTopics bool `json:"makes_topics"` // by using them
}

// Window is for how long something is kept that makes a late copy harmless or a replay possible.
type Window struct {
	Of    string   `json:"of"`
	Keeps Duration `json:"keeps"` // 0: for ever
}

// Database is how the process sees its database.
type Database struct {
	Name      string   `json:"name"`
	Role      string   `json:"role"`
	Excess    []string `json:"excess_rights"` // what the role may do and a running service need not
	Reaches   []string `json:"reaches"`       // other databases of the server to which the role may connect
	Ahead     Duration `json:"clock_ahead"`   // of the database's clock before the process's
	RoundTrip Duration `json:"round_trip"`    // Ahead is right to half of it
}

// Duration reads as people write it, such as 1m30s.
type Duration time.Duration

func (d Duration) String() string               { return time.Duration(d).String() }
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the other way of MarshalText.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}
