package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/paycast/shared/settings"
)

// Check applies every rule to every thing that it is about.
func Check(f Facts) []settings.Finding {
	var all []settings.Finding
	for i, p := range f.Processes {
		all = append(all, answers(p))
		if p.Err != nil {
			continue
		}
		all = append(all, settings.Check(p.Name, p.Report, f.Tolerance)...)
		for _, d := range p.Report.Databases {
			all = append(all, apartFrom(f.Processes, i, d))
		}
		all = append(all, clock(p, f.Tolerance))
	}
	all = append(all, topics(f)...)
	for _, p := range f.Processes {
		all = append(all, settings.CheckWindows(p.Name, p.Report.Windows, f.Kafka.Topics, f.Horizon)...)
	}
	return all
}

// answers is the rule without which no other rule says anything about a process. The mapping of an index, the reach of a
// database, the movement of partitions: what a process watches itself, its readiness tells.
func answers(p Process) settings.Finding {
	found := settings.Finding{
		Rule: "ready", Of: p.Name, Arithmetic: "answers, and every check of /readyz is ok", OK: p.Err == nil && len(p.NotOK) == 0,
		Otherwise: "this process may not do its work; see the runbook",
	}
	switch {
	case p.Err != nil:
		found.Arithmetic, found.Otherwise = p.Err.Error(), "this process may not do its work, and its settings are not known; see the runbook"
	case len(p.NotOK) > 0:
		found.Arithmetic = strings.Join(p.NotOK, "; ")
	}
	return found
}

// apartFrom looks for databases of other processes in what a role reaches. What else its server has is nobody's.
func apartFrom(all []Process, i int, d settings.Database) settings.Finding {
	var reached []string
	for _, other := range all {
		for _, theirs := range other.Report.Databases {
			if theirs.Name != d.Name && slices.Contains(d.Reaches, theirs.Name) {
				reached = append(reached, theirs.Name+" of "+other.Name)
			}
		}
	}
	found := settings.Finding{
		Rule: "databases", Of: all[i].Name + ", role " + d.Role, OK: len(reached) == 0,
		Arithmetic: fmt.Sprintf("connects to %s and to no other service's database", d.Name),
		Otherwise:  "a fault or an intruder in one service reads what another one keeps; revoke connect on the database from public, and grant it to its own role",
	}
	if !found.OK {
		found.Arithmetic = fmt.Sprintf("connects to %s, and may to %s", d.Name, strings.Join(reached, ", "))
	}
	return found
}

func clock(p Process, tolerance time.Duration) settings.Finding {
	return settings.Apart(p.Name+" and this machine", -p.Ahead, p.RoundTrip, tolerance)
}

func topics(f Facts) []settings.Finding {
	used := Topics(f.Processes)
	if f.KafkaErr != nil {
		return []settings.Finding{{
			Rule: settings.MissingTopic, Of: strings.Join(used, ", "), Arithmetic: f.KafkaErr.Error(),
			Otherwise: "nothing is known of partitions, cleanup, retention and of who makes topics, until Kafka answers at KAFKA_BROKERS",
		}}
	}
	return f.Kafka.Check(used, f.Horizon)
}
