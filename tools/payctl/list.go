package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"example.com/paycast/tools/payctl/internal/fleet"
)

// pageSize is what is asked for at once; every list of every service gives that many.
const pageSize = 100

// filter is common to all lists.
type filter struct {
	Service string `help:"Ask this process only." placeholder:"NAME"`
	Limit   int    `help:"Rows at most, of each service." default:"100" placeholder:"N"`
}

// Validate is called by kong.
func (f filter) Validate() error {
	if f.Limit < 1 {
		return errors.New("--limit must be at least 1")
	}
	return nil
}

// chosen is the value of a flag with a closed set of values; "" when it is not given. Such a flag has an enum, so that a
// slip of the fingers is told before anybody is asked; kong wants a pointer where nothing is the default.
func chosen(flag *string) string {
	if flag == nil {
		return ""
	}
	return *flag
}

// stated is a state as services are asked for it.
func stated(flag string) string {
	if flag == "ALL" {
		return ""
	}
	return flag
}

type outboxList struct {
	filter
	Status *string `help:"One of ${enum}; SENT only together with --order." enum:"PENDING,SENDING,RETRY,DEAD,SENT" placeholder:"STATUS"`
	Order  string  `help:"All events of this order." placeholder:"NO"`
}

// Validate is called by kong.
func (c outboxList) Validate() error {
	if chosen(c.Status) == "SENT" && c.Order == "" {
		return errors.New("--status SENT needs --order: there are weeks of sent events")
	}
	return c.filter.Validate()
}

// Run lists outbox rows.
func (c outboxList) Run(a *app) error {
	return a.list(c.filter, listing{
		what: "outbox rows (archived ones are not listed)", path: "/ops/outbox", key: "rows", query: url.Values{"status": {chosen(c.Status)}, "order_no": {c.Order}},
		columns: []string{"service", "event_id", "order_no", "event_type", "aggregate_version", "status", "skipped", "retry_count", "takeover_count", "held_by",
			"last_error_code", "partition", "offset", "created_at"},
	})
}

type destinationsCommand struct{}

// Run lists the destinations.
func (destinationsCommand) Run(a *app) error {
	return a.list(filter{Limit: pageSize}, listing{
		what: "destinations (one stands here from its first trouble on)", path: "/ops/outbox", key: "destinations", whole: true,
		columns: []string{"service", "destination", "state", "cause", "since", "probe_at"},
	})
}

type incidentsList struct {
	filter
	State string `help:"One of ${enum}." default:"OPEN" enum:"OPEN,RESOLVED,ALL" placeholder:"STATE"`
}

// Run lists incidents.
func (c incidentsList) Run(a *app) error {
	return a.list(c.filter, listing{
		what: "incidents", path: "/ops/incidents", key: "incidents", query: url.Values{"state": {stated(c.State)}},
		columns: []string{"service", "id", "kind", "order_no", "trade_no", "expected", "received", "state", "created_at"},
	})
}

type logList struct {
	filter
	Status *string `help:"One of ${enum}." enum:"PROCESSING,SUCCESS,RETRY,WAITING,REJECTED,DEAD" placeholder:"STATUS"`
	Order  string  `help:"Of this order." placeholder:"NO"`
}

// Run lists consume logs.
func (c logList) Run(a *app) error {
	return a.list(c.filter, listing{
		what: "events in the consume logs (archived ones are not listed)", path: "/ops/consume-log", key: "rows", query: url.Values{"status": {chosen(c.Status)}, "order_no": {c.Order}},
		columns: []string{"service", "event_id", "order_no", "event_type", "version", "status", "outcome", "retry_count", "held_by", "error_code", "partition", "offset", "updated_at"},
	})
}

type lettersList struct {
	filter
	State string `help:"One of ${enum}." default:"OPEN" enum:"OPEN,RELEASED,DISCARDED,ALL" placeholder:"STATE"`
	Order string `help:"Of this order." placeholder:"NO"`
}

// Run lists dead letters.
func (c lettersList) Run(a *app) error {
	return a.list(c.filter, listing{
		what: "dead letters", path: "/ops/dead-letters", key: "letters", query: url.Values{"state": {stated(c.State)}, "order_no": {c.Order}},
		columns: []string{"service", "letter_id", "order_no", "event_type", "error_class", "error_code", "attempts", "owner", "state", "first_seen_at"},
	})
}

type commandsList struct {
	filter
	Status *string `help:"One of ${enum}." enum:"PENDING,SENDING,SENT,RETRY,UNKNOWN,FAILED" placeholder:"STATUS"`
	Order  string  `help:"Of this order." placeholder:"NO"`
}

// Run lists notification commands.
func (c commandsList) Run(a *app) error {
	return a.list(c.filter, listing{
		what: "commands", path: "/ops/commands", key: "commands", query: url.Values{"status": {chosen(c.Status)}, "order_no": {c.Order}},
		columns: []string{"service", "command_id", "order_no", "kind", "status", "attempts", "last_error_code", "next_attempt_at", "created_at", "sent_at"},
	})
}

// listing is one kind of list that services may have.
type listing struct {
	what, path, key string
	query           url.Values
	columns         []string
	whole           bool // not in pages
}

// list asks every process that has such a list. Rows that two processes of one database both tell are shown once. When
// somebody cannot be asked, the rest is shown all the same, and the command fails.
func (a *app) list(f filter, l listing) error {
	asked, err := a.fleet.Only(f.Service)
	if err != nil {
		return usage{err}
	}
	rows, seen, more := []row{}, map[string]bool{}, false
	var failed []error
	answers := asked.Ask(a, l.path, l.first())
	for _, answer := range answers {
		found, cut, err := l.rest(a, answer, f.Limit)
		if err != nil {
			failed = append(failed, a.fleet.Explain(answer.From, err))
		}
		more = more || cut
		for _, r := range found {
			told, err := json.Marshal(r) // maps are encoded in the order of their keys
			if err != nil {
				return err
			}
			if !seen[string(told)] {
				seen[string(told)] = true
				r["service"] = answer.From.Name
				rows = append(rows, r)
			}
		}
	}
	switch {
	case a.json:
		err = printJSON(a.out, rows)
	case len(rows) > 0:
		err = table(a.out, l.columns, rows)
	}
	if more && !a.json {
		fmt.Fprintln(a.out, "there are more: raise --limit, or narrow the list")
	}
	if err = errors.Join(append(failed, err)...); err == nil && len(rows) == 0 {
		return nothing(fmt.Sprintf("no %s in %s", l.what, processes(answers)))
	}
	return err
}

func processes(answers []fleet.Answer) string {
	if len(answers) == 0 {
		return "any process: none has such a list"
	}
	var names []string
	for _, a := range answers {
		names = append(names, a.From.Name)
	}
	return strings.Join(names, ", ")
}

func (l listing) first() url.Values {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for name, values := range maps.All(l.query) {
		if values[0] != "" {
			query[name] = values
		}
	}
	return query
}

// rest reads on from a first page until limit, and says whether there would be more.
func (l listing) rest(a *app, answer fleet.Answer, limit int) (rows []row, more bool, err error) {
	query := l.first()
	for err = answer.Err; err == nil; err = answer.From.GetJSON(a, l.path, query, &answer.JSON) {
		var page map[string]any
		if err := decode(answer.JSON, &page); err != nil {
			return rows, false, err
		}
		found, _ := page[l.key].([]any)
		for _, one := range found {
			if r, ok := one.(map[string]any); ok {
				rows = append(rows, r)
			}
		}
		next := ""
		if page["next"] != nil {
			next = fmt.Sprint(page["next"])
		}
		if len(rows) > limit {
			return rows[:limit], true, nil
		}
		if l.whole || next == "" {
			return rows, false, nil
		}
		query.Set("after", next)
	}
	return rows, false, err
}
