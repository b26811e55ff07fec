package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/settings"
)

// Check applies every rule to every thing that it is about.
func Check(f Facts) []Finding {
	var all []Finding
	for i, p := range f.Processes {
		all = append(all, answers(p))
		if p.Err != nil {
			continue
		}
		for _, l := range p.Report.Leases {
			all = append(all, lease(p, l))
		}
		for _, producer := range p.Report.Producers {
			all = append(all, producing(p, producer), clientMakes(p, producer.MakesTopics))
		}
		for _, g := range p.Report.Groups {
			all = append(all, offsets(p, g), handler(p, g), clientMakes(p, g.MakesTopics))
		}
		for _, d := range p.Report.Databases {
			all = append(all, rights(p, d), apartFrom(f.Processes, i, d), databaseClock(p, d, f.Tolerance))
		}
		all = append(all, clock(p, f.Tolerance))
	}
	all = append(all, topics(f)...)
	all = append(all, brokersMake(f)...)
	return append(all, windows(f)...)
}

// answers is the rule without which no other rule says anything about a process. The mapping of an index, the reach of a
// database, the movement of partitions: what a process watches itself, its readiness tells.
func answers(p Process) Finding {
	found := Finding{
		Rule: "ready", Of: p.Name, Arithmetic: "answers, and every check of /readyz is ok", OK: p.Err == nil && len(p.NotOK) == 0,
		Otherwise: "this process may not do its work, and its settings are not known; see the runbook",
	}
	switch {
	case p.Err != nil:
		found.Arithmetic = p.Err.Error()
	case len(p.NotOK) > 0:
		found.Arithmetic = strings.Join(p.NotOK, "; ")
	}
	return found
}

func lease(p Process, l settings.Lease) Finding {
	r := l.Rule()
	return Finding{
		Rule: "lease", Of: p.Name + ", " + l.Of, OK: r.Validate() == nil,
		Arithmetic: fmt.Sprintf("lease %v > deadline %v + margin %v = %v", r.Lease, r.Deadline, r.Margin, r.Deadline+r.Margin),
		Otherwise:  "rows are taken over from holders that are alive, and work is done twice; lengthen the lease or shorten the deadline",
	}
}

func producing(p Process, s settings.Producer) Finding {
	return Finding{
		Rule: "producer", Of: p.Name, OK: s.Acks == "all" && s.Idempotent && s.OpenRequests == 1,
		Arithmetic: fmt.Sprintf("acks=%s = all, idempotent=%t = true, open requests %d = 1", s.Acks, s.Idempotent, s.OpenRequests),
		Otherwise:  "a confirmed event can be lost with its leader, or retries reorder the events of a key; publish through shared/kafka only",
	}
}

func offsets(p Process, g settings.Group) Finding {
	return Finding{
		Rule: "offsets", Of: p.Name, OK: g.Initial == "oldest" && !g.Reset,
		Arithmetic: fmt.Sprintf("initial offset %s = oldest, reset of lost offsets %t = false", g.Initial, g.Reset),
		Otherwise:  "a new group misses what was published before its first start, or loses events silently; subscribe through shared/kafka only",
	}
}

func handler(p Process, g settings.Group) Finding {
	return Finding{
		Rule: "handler", Of: p.Name, OK: g.Deadline < g.Rejoin, Note: true,
		Arithmetic: fmt.Sprintf("handler deadline %v < rebalance timeout %v (2 x session timeout %v)", g.Deadline, g.Rejoin, g.Session),
		Otherwise:  "a member with a slow message in hand is thrown out at a rebalance, and the message is delivered again; raise KAFKA_SESSION_TIMEOUT or lower CONSUMER_HANDLER_TIMEOUT",
	}
}

func rights(p Process, d settings.Database) Finding {
	found := Finding{
		Rule: "rights", Of: p.Name + ", role " + d.Role, Arithmetic: "reads and writes rows, and nothing else", OK: len(d.Excess) == 0,
		Otherwise: "a fault or an intruder in the service can change tables and the append-only audit; give DATABASE_URL the role for rows, and keep the owner for migrations",
	}
	if !found.OK {
		found.Arithmetic = strings.Join(d.Excess, "; ")
	}
	return found
}

// apartFrom looks for databases of other processes in what a role reaches. What else its server has is nobody's.
func apartFrom(all []Process, i int, d settings.Database) Finding {
	var reached []string
	for _, other := range all {
		for _, theirs := range other.Report.Databases {
			if theirs.Name != d.Name && slices.Contains(d.Reaches, theirs.Name) {
				reached = append(reached, theirs.Name+" of "+other.Name)
			}
		}
	}
	found := Finding{
		Rule: "databases", Of: all[i].Name + ", role " + d.Role, OK: len(reached) == 0,
		Arithmetic: fmt.Sprintf("connects to %s and to no other service's database", d.Name),
		Otherwise:  "a fault or an intruder in one service reads what another one keeps; revoke connect on the database from public, and grant it to its own role",
	}
	if !found.OK {
		found.Arithmetic = fmt.Sprintf("connects to %s, and may to %s", d.Name, strings.Join(reached, ", "))
	}
	return found
}

func databaseClock(p Process, d settings.Database, tolerance time.Duration) Finding {
	return apart(p.Name+" and its database", time.Duration(d.Ahead), time.Duration(d.RoundTrip), tolerance)
}

func clock(p Process, tolerance time.Duration) Finding {
	return apart(p.Name+" and this machine", -p.Ahead, p.RoundTrip, tolerance)
}

// apart does not count what the way of the answer may have taken.
func apart(what string, ahead, roundTrip, tolerance time.Duration) Finding {
	allowed := tolerance + roundTrip/2
	return Finding{
		Rule: "clocks", Of: what, OK: ahead.Abs() <= allowed,
		Arithmetic: fmt.Sprintf("apart by %v <= tolerance %v + half a round trip %v", ahead.Abs().Round(time.Millisecond), tolerance, (roundTrip / 2).Round(time.Millisecond)),
		Otherwise:  "signatures are refused as too old, and ages and reports are wrong; run a time service on both machines",
	}
}

// topics checks each topic that some group reads.
func topics(f Facts) []Finding {
	used := Topics(f.Processes)
	if f.KafkaErr != nil {
		return []Finding{{
			Rule: "topics", Of: strings.Join(used, ", "), Arithmetic: f.KafkaErr.Error(),
			Otherwise: "nothing is known of partitions, cleanup, retention and of who makes topics; name the brokers in KAFKA_BROKERS",
		}}
	}
	var all []Finding
	for _, name := range used {
		i := slices.IndexFunc(f.Topics, func(t kafka.TopicSettings) bool { return t.Topic == name })
		if i < 0 {
			all = append(all, Finding{
				Rule: "topics", Of: name, Arithmetic: "it does not exist",
				Otherwise: "the outbox fills and its destination is paused; create the topic",
			})
			continue
		}
		t := f.Topics[i]
		all = append(all, Finding{
			Rule: "partitions", Of: name, OK: t.Partitions == event.Partitions,
			Arithmetic: fmt.Sprintf("partitions %d = %d", t.Partitions, event.Partitions),
			Otherwise:  "keys moved to other partitions, and events of an order overtake each other; make the topic anew and replay",
		}, Finding{
			Rule: "cleanup", Of: name, OK: t.Cleanup == "delete",
			Arithmetic: fmt.Sprintf("cleanup.policy %s = delete", t.Cleanup),
			Otherwise:  "compaction drops all but the last event of an order before everybody has read them; set cleanup.policy=delete",
		}, Finding{
			Rule: "retention", Of: name, OK: t.Retention < 0 || t.Retention >= f.Horizon,
			Arithmetic: fmt.Sprintf("retention.ms %s >= replay horizon %v", kept(t.Retention, -1), f.Horizon),
			Otherwise:  "a replay finds less than it was promised; raise retention.ms",
		})
	}
	return all
}

const madeByUse = "a mistyped name becomes a topic with the broker's partitions, and what is sent there is read by nobody; "

func clientMakes(p Process, makes bool) Finding {
	return Finding{
		Rule: "making", Of: p.Name, OK: !makes, Arithmetic: fmt.Sprintf("topics are made by using them %t = false", makes),
		Otherwise: madeByUse + "use shared/kafka only",
	}
}

func brokersMake(f Facts) (all []Finding) {
	for _, id := range slices.Sorted(maps.Keys(f.Brokers)) {
		told := f.Brokers[id]
		if told == "" {
			told = "(not told)"
		}
		all = append(all, Finding{
			Rule: "making", Of: fmt.Sprintf("broker %d", id), OK: told == "false",
			Arithmetic: fmt.Sprintf("auto.create.topics.enable %s = false", told),
			Otherwise:  madeByUse + "set it to false on every broker",
		})
	}
	return all
}

// windows checks that what makes a late copy harmless is kept for as long as a copy may come.
func windows(f Facts) []Finding {
	reach, forEver := f.Horizon, false
	for _, t := range f.Topics {
		reach, forEver = max(reach, t.Retention), forEver || t.Retention < 0
	}
	var all []Finding
	for _, p := range f.Processes {
		for _, w := range p.Report.Windows {
			found := Finding{
				Rule: "window", Of: p.Name + ", " + w.Of,
				OK:         w.Keeps == 0 || !forEver && time.Duration(w.Keeps) >= reach,
				Arithmetic: fmt.Sprintf("kept %s >= max(Kafka's retention, replay horizon %v) = %v", kept(time.Duration(w.Keeps), 0), f.Horizon, reach),
				Otherwise:  "a copy from Kafka or a replay comes when its trace is gone: an effect is made twice, or an event is not found where a person looks; lengthen the window",
			}
			if forEver {
				found.Arithmetic = fmt.Sprintf("kept %s >= Kafka's retention, for ever", kept(time.Duration(w.Keeps), 0))
			}
			all = append(all, found)
		}
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
