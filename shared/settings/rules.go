package settings

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/paycast/shared/event"
)

// Finding is one rule applied to one thing.
type Finding struct {
	Rule       string `json:"rule"`
	Of         string `json:"of"`
	Arithmetic string `json:"arithmetic"`
	OK         bool   `json:"ok"`
	Note       bool   `json:"note,omitempty"`      // when bad: work is wasted, and no promise is broken
	Otherwise  string `json:"otherwise,omitempty"` // when bad: what goes wrong, and what to do
}

// Tolerance is how far clocks may be apart before anybody complains.
const Tolerance = time.Second

// MissingTopic is the rule that a topic which is not there breaks.
const MissingTopic = "topics"

// Rules are the names of all that CheckAlone may find broken, notes aside.
func Rules() []string {
	return []string{"lease", "producer", "offsets", "rights", "clocks", "making", MissingTopic, "partitions", "cleanup", "retention", "window"}
}

// CheckAlone applies what a process can check without the other processes. While Kafka cannot be asked, the findings are
// those that need no answer of it, and the error says why.
func CheckAlone(ctx context.Context, r Report) ([]Finding, error) {
	all := Check(r.Process, r, Tolerance)
	if r.Kafka == nil {
		return all, nil
	}
	seen, err := r.Kafka(ctx)
	if err != nil {
		return all, err
	}
	horizon := time.Duration(r.Horizon)
	all = append(all, seen.Check(r.Topics(), horizon)...)
	return append(all, CheckWindows(r.Process, r.Windows, seen.Topics, horizon)...), nil
}

// Check applies to a report the rules for which nobody else is asked. of names the process.
func Check(of string, r Report, tolerance time.Duration) []Finding {
	var all []Finding
	for _, l := range r.Leases {
		all = append(all, leasing(of, l))
	}
	for _, p := range r.Producers {
		all = append(all, producing(of, p), clientMakes(of, p.MakesTopics))
	}
	for _, g := range r.Groups {
		all = append(all, offsets(of, g), handler(of, g), clientMakes(of, g.MakesTopics))
	}
	for _, d := range r.Databases {
		all = append(all, rights(of, d), Apart(of+" and its database", time.Duration(d.Ahead), time.Duration(d.RoundTrip), tolerance))
	}
	return all
}

func leasing(of string, l Lease) Finding {
	r := l.Rule()
	return Finding{
		Rule: "lease", Of: of + ", " + l.Of, OK: r.Validate() == nil,
		Arithmetic: fmt.Sprintf("lease %v > deadline %v + margin %v = %v", r.Lease, r.Deadline, r.Margin, r.Deadline+r.Margin),
		Otherwise:  "rows are taken over from holders that are alive, and work is done twice; lengthen the lease or shorten the deadline",
	}
}

func producing(of string, p Producer) Finding {
	return Finding{
		Rule: "producer", Of: of, OK: p.Acks == "all" && p.Idempotent && p.OpenRequests == 1,
		Arithmetic: fmt.Sprintf("acks=%s = all, idempotent=%t = true, open requests %d = 1", p.Acks, p.Idempotent, p.OpenRequests),
		Otherwise:  "a confirmed event can be lost with its leader, or retries reorder the events of a key; publish through shared/kafka only",
	}
}

func offsets(of string, g Group) Finding {
	return Finding{
		Rule: "offsets", Of: of, OK: g.Initial == "oldest" && !g.Reset,
		Arithmetic: fmt.Sprintf("initial offset %s = oldest, reset of lost offsets %t = false", g.Initial, g.Reset),
		Otherwise:  "a new group misses what was published before its first start, or loses events silently; subscribe through shared/kafka only",
	}
}

func handler(of string, g Group) Finding {
	return Finding{
		Rule: "handler", Of: of, OK: g.Deadline < g.Rejoin, Note: true,
		Arithmetic: fmt.Sprintf("handler deadline %v < rebalance timeout %v (2 x session timeout %v)", g.Deadline, g.Rejoin, g.Session),
		Otherwise:  "a member with a slow message in hand is thrown out at a rebalance, and the message is delivered again; raise KAFKA_SESSION_TIMEOUT or lower CONSUMER_HANDLER_TIMEOUT",
	}
}

func rights(of string, d Database) Finding {
	return Finding{
		Rule: "rights", Of: of + ", role " + d.Role, OK: len(d.Excess) == 0,
		Arithmetic: cmp.Or(strings.Join(d.Excess, "; "), "reads and writes rows, and nothing else"),
		Otherwise:  "a fault or an intruder in the service can change tables and the append-only audit; give DATABASE_URL the role for rows, and keep the owner for migrations",
	}
}

// Apart is the rule about two clocks. What the way of the answer may have taken is not counted.
func Apart(what string, ahead, roundTrip, tolerance time.Duration) Finding {
	allowed := tolerance + roundTrip/2
	return Finding{
		Rule: "clocks", Of: what, OK: ahead.Abs() <= allowed,
		Arithmetic: fmt.Sprintf("apart by %v <= tolerance %v + half a round trip %v", ahead.Abs().Round(time.Millisecond), tolerance, (roundTrip / 2).Round(time.Millisecond)),
		Otherwise:  "signatures are refused as too old, and ages and reports are wrong; run a time service on both machines",
	}
}

const madeByUse = "a mistyped name becomes a topic with the broker's partitions, and what is sent there is read by nobody; "

func clientMakes(of string, makes bool) Finding {
	return Finding{
		Rule: "making", Of: of, OK: !makes, Arithmetic: fmt.Sprintf("topics are made by using them %t = false", makes),
		Otherwise: madeByUse + "use shared/kafka only",
	}
}

// Check applies to the brokers, and to each of the topics, what consumers need of them. horizon is how far back a
// replay may reach.
func (k Kafka) Check(topics []string, horizon time.Duration) []Finding {
	var all []Finding
	for _, name := range topics {
		i := slices.IndexFunc(k.Topics, func(t Topic) bool { return t.Topic == name })
		if i < 0 {
			all = append(all, Finding{
				Rule: MissingTopic, Of: name, Arithmetic: "it does not exist",
				Otherwise: "the outbox fills and its destination is paused; create the topic",
			})
			continue
		}
		all = append(all, k.Topics[i].check(horizon)...)
	}
	for _, id := range slices.Sorted(maps.Keys(k.Brokers)) {
		told := cmp.Or(k.Brokers[id], "(not told)")
		all = append(all, Finding{
			Rule: "making", Of: fmt.Sprintf("broker %d", id), OK: told == "false",
			Arithmetic: fmt.Sprintf("auto.create.topics.enable %s = false", told),
			Otherwise:  madeByUse + "set it to false on every broker",
		})
	}
	return all
}

func (t Topic) check(horizon time.Duration) []Finding {
	return []Finding{{
		Rule: "partitions", Of: t.Topic, OK: t.Partitions == event.Partitions,
		Arithmetic: fmt.Sprintf("partitions %d = %d", t.Partitions, event.Partitions),
		Otherwise:  "keys moved to other partitions, and events of an order overtake each other; make the topic anew and replay",
	}, {
		Rule: "cleanup", Of: t.Topic, OK: t.Cleanup == "delete",
		Arithmetic: fmt.Sprintf("cleanup.policy %s = delete", t.Cleanup),
		Otherwise:  "compaction drops all but the last event of an order before everybody has read them; set cleanup.policy=delete",
	}, {
		Rule: "retention", Of: t.Topic, OK: t.Retention < 0 || t.Retention >= horizon,
		Arithmetic: fmt.Sprintf("retention.ms %s >= replay horizon %v", kept(t.Retention, -1), horizon),
		Otherwise:  "a replay finds less than it was promised; raise retention.ms",
	}}
}

// CheckWindows checks that what makes a late copy harmless is kept for as long as a copy may come.
func CheckWindows(of string, windows []Window, topics []Topic, horizon time.Duration) []Finding {
	reach, forEver := horizon, false
	for _, t := range topics {
		reach, forEver = max(reach, t.Retention), forEver || t.Retention < 0
	}
	var all []Finding
	for _, w := range windows {
		found := Finding{
			Rule: "window", Of: of + ", " + w.Of,
			OK:         w.Keeps == 0 || !forEver && time.Duration(w.Keeps) >= reach,
			Arithmetic: fmt.Sprintf("kept %s >= max(Kafka's retention, replay horizon %v) = %v", kept(time.Duration(w.Keeps), 0), horizon, reach),
			Otherwise:  "a copy from Kafka or a replay comes when its trace is gone: an effect is made twice, or an event is not found where a person looks; lengthen the window",
		}
		if forEver {
			found.Arithmetic = fmt.Sprintf("kept %s >= Kafka's retention, for ever", kept(time.Duration(w.Keeps), 0))
		}
		all = append(all, found)
	}
	return all
}

// kept is a duration, or for ever at or below the given one.
func kept(d, forEver time.Duration) string {
	if d <= forEver {
		return "for ever"
	}
	return d.String()
}
