package reconcile

import "cmp"

// Finding is one difference. The same damage gives the same Kind, Group, OrderNo and EventID in every run.
type Finding struct {
	Kind    string `json:"kind"`
	Group   string `json:"group"` // empty when the source itself is wrong
	OrderNo string `json:"order_no"`
	EventID string `json:"event_id"`
	Detail  string `json:"detail"` // for people
	State   string `json:"state"`  // open
}

// byOrder puts the findings of one order together.
func byOrder(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.OrderNo, b.OrderNo), cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.EventID, b.EventID), cmp.Compare(a.Kind, b.Kind))
}

// stateOpen is the state of a finding that nobody has acted on.
const stateOpen = "open"

// The kinds of findings.
const (
	PaidMismatch = "paid_mismatch"
	History      = "history_broken"
	OutboxDead   = "outbox_dead"
	UnsentLate   = "unsent_late"

	Missing         = "missing"
	Late            = "late"
	Dead            = "dead"
	Unclear         = "unclear"
	EventDiffers    = "event_differs"
	UnknownEvent    = "unknown_event"
	SupersededWrong = "superseded_wrongly"
	SelfCheck       = "self_check"

	EffectMissing    = "effect_missing"
	EffectRepeated   = "effect_repeated"
	EffectUnexpected = "effect_unexpected"
	EffectDiffers    = "effect_differs"
	EffectFailed     = "effect_failed"
	EffectUnknown    = "effect_unknown"
	EffectLate       = "effect_late"
)

// nextStep says for each kind what to look at. It is also the list of all kinds.
var nextStep = map[string]string{
	PaidMismatch: "the order's row, its payment and its outbox rows in payment's database: they are written in one transaction",
	History:      "the order's outbox rows: a version is missing, repeated or contradicts the order's state",
	OutboxDead:   "the outbox row's last error at payment's /ops/outbox; later events of the order are held behind it",
	UnsentLate:   "the relay: is it running, is the destination paused, is the row held behind another (/ops/outbox)",

	Missing:         "the group acked the event without a log row: redeliver it to this group under its own id",
	Late:            "the consumer: is it running and ready, how large is its lag, what does its retry lane say (/ops/consume-log)",
	Dead:            "the dead letter at the group's /ops/dead-letters: repair the cause, then replay it",
	Unclear:         "the log row: its status or outcome is none that this build knows",
	EventDiffers:    "two facts share an id: compare the outbox row with the log row and the dead letters of the group",
	UnknownEvent:    "where the event came from: the source has no such outbox row",
	SupersededWrong: "the version guard: nothing newer was applied in place of this event",
	SelfCheck:       "the service's own data, which do not agree among themselves",

	EffectMissing:    "the log says done but the effect is not there: reapply the event in this service",
	EffectRepeated:   "the unique key of the effect: it is there more than once",
	EffectUnexpected: "an effect that this event may not have",
	EffectDiffers:    "the effect's user, amount, version, state or contents against the order; a wrong copy is made anew by its service's rebuild",
	EffectFailed:     "the command that was given up (/ops/commands)",
	EffectUnknown:    "ask the other side whether it has done the command, before it is sent again (/ops/commands)",
	EffectLate:       "the sender: is it running, is its rate 0, what does the other side answer (/ops/commands)",
}
