package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"gorm.io/gorm"
	"pgregory.net/rapid"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/postgres"
)

var errCrash = errors.New("the process ends before COMMIT")

// world is one history of a group that is drawn at random: whatever happens to its deliveries, an event has one effect
// or none, versions do not overtake each other, and nothing is out of everybody's reach.
type world struct {
	log
	group   string
	claimed []*inbox.Delivery // by workers, living and dead
}

func TestWhateverHappensAnEventHasOneEffectAndNothingIsOutOfReach(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	var histories atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{log: log{t: t, db: l.db}, group: fmt.Sprint("g", histories.Add(1))}
		rt.Repeat(map[string]func(*rapid.T){
			"a message comes from a partition": func(rt *rapid.T) { w.arrives(rt, w.draw(rt)) },
			"another body comes under its id": func(rt *rapid.T) {
				d := w.draw(rt)
				known := w.number("SELECT count(*) FROM t_message_consume WHERE consumer_group = ? AND event_id = ?", w.group, d.Event.ID)
				if known == 0 {
					return // then it would be the first
				}
				if out := w.attempt(rt, otherBody(d), nil); out != inbox.Conflict {
					rt.Fatalf("another body is %q", out)
				}
			},
			"a worker takes what is due":         func(rt *rapid.T) { w.takes(rt, inbox.Claim) },
			"a lease runs out and is taken over": func(rt *rapid.T) { w.takes(rt, inbox.TakeOver) },
			"a worker, perhaps a late one, ends": func(rt *rapid.T) {
				if len(w.claimed) == 0 {
					return
				}
				i := rapid.IntRange(0, len(w.claimed)-1).Draw(rt, "worker")
				d := w.claimed[i]
				w.claimed = append(w.claimed[:i], w.claimed[i+1:]...)
				w.arrives(rt, *d)
			},
			"an operator decides": w.decides,
			"somebody looks for what waits for nothing": func(rt *rapid.T) {
				if freed := w.mend(rt); freed != 0 {
					rt.Fatalf("%d rows waited for nothing, and nobody has edited any", freed)
				}
			},
			"somebody edits what a row waits for": w.edits,
			"":                                    w.holds,
		})
		w.comesToRest(rt)
	})
}

// draw gives one of a few events of a few orders.
func (w *world) draw(rt *rapid.T) inbox.Delivery {
	order, version := rapid.IntRange(1, 2).Draw(rt, "order"), rapid.Int64Range(1, 3).Draw(rt, "version")
	d := delivery(version)
	d.Group = w.group
	d.Event.AggregateID = fmt.Sprintf("%s-o-%d", w.group, order)
	d.Event.ID = fmt.Sprintf("%s-%d", d.Event.AggregateID, version)
	d.Record.Key, d.Record.Headers = []byte(d.Event.AggregateID), d.Event.Headers()
	d.Record.Offset = version + 10*int64(order)
	return d
}

// arrives lets a handler answer in any way, and does what the consumer does then.
func (w *world) arrives(rt *rapid.T, d inbox.Delivery) {
	answer := rapid.SampledFrom([]inbox.Outcome{inbox.Applied, inbox.Retry, inbox.Waiting, inbox.Refused, inbox.Dead, "crash", "down"}).Draw(rt, "answer")
	switch answer {
	case inbox.Applied:
		w.attempt(rt, d, nil)
	case "crash":
		w.attempt(rt, d, errCrash)
	case "down":
		if d.Claimed {
			w.must(rt, inbox.GiveBack(context.Background(), w.db, d, 0))
		}
	default:
		out := w.attempt(rt, d, errors.New("no"))
		if out != "" {
			return // the log had decided already
		}
		w.must(rt, postgres.Transaction(context.Background(), w.db, func(tx *gorm.DB) error {
			_, err := inbox.Fail(context.Background(), tx, d, inbox.Failure{Outcome: answer, Trouble: inbox.Trouble{Class: inbox.ClassTransient, Text: "drawn"}})
			return err
		}))
	}
}

// attempt runs a handler that writes an effect, looks around, and returns result.
func (w *world) attempt(rt *rapid.T, d inbox.Delivery, result error) (out inbox.Outcome) {
	err := postgres.Transaction(context.Background(), w.db, func(tx *gorm.DB) (err error) {
		out, err = inbox.Once(context.Background(), tx, d, func(tx *gorm.DB) (inbox.Outcome, error) {
			var earlier int64
			if err := tx.Raw(`SELECT count(*) FROM t_message_consume WHERE consumer_group = ? AND aggregate_id = ? AND aggregate_version < ?
				AND status NOT IN ('SUCCESS', 'REJECTED') AND NOT skipped`, d.Group, d.Event.AggregateID, d.Event.AggregateVersion).Scan(&earlier).Error; err != nil {
				return "", err
			}
			if earlier > 0 {
				rt.Fatalf("version %d runs while an earlier one is unfinished", d.Event.AggregateVersion)
			}
			if err := tx.Exec("INSERT INTO t_effect VALUES (?)", d.Event.ID).Error; err != nil {
				return "", err
			}
			return inbox.Applied, result
		})
		return err
	})
	if result == nil || !errors.Is(err, result) {
		w.must(rt, err)
	}
	return out
}

// takes is a worker that claims with a lease that is over at once: somebody may take over at any time.
func (w *world) takes(rt *rapid.T, claim func(context.Context, *gorm.DB, string, lease.Rule) (*inbox.Delivery, error)) {
	d, err := claim(context.Background(), w.db, w.group, lease.Rule{})
	w.must(rt, err)
	if d == nil {
		return
	}
	e, err := event.Decode(d.Record)
	w.must(rt, err)
	d.Event = e
	w.claimed = append(w.claimed, d)
}

func (w *world) decides(rt *rapid.T) {
	var letters []int64
	w.must(rt, w.db.Raw("SELECT letter_id FROM t_dead_letter WHERE consumer_group = ? AND state = 'OPEN' ORDER BY letter_id", w.group).Scan(&letters).Error)
	if len(letters) == 0 {
		return
	}
	id := rapid.SampledFrom(letters).Draw(rt, "letter")
	verb := rapid.SampledFrom([]string{"release", "discard", "skip"}).Draw(rt, "decision")
	err := postgres.Transaction(context.Background(), w.db, func(tx *gorm.DB) error {
		switch verb {
		case "release":
			return inbox.Release(context.Background(), tx, w.group, id, why)
		case "discard":
			return inbox.Discard(context.Background(), tx, w.group, id, why)
		default:
			return inbox.Skip(context.Background(), tx, w.group, id)
		}
	})
	if !errors.Is(err, inbox.ErrNotReleasable) && !errors.Is(err, inbox.ErrNotHolding) && !errors.Is(err, inbox.ErrUnderWay) {
		w.must(rt, err)
	}
}

// edits lets a held row wait for whatever there is, or for nothing that there is, until somebody looks.
func (w *world) edits(rt *rapid.T) {
	d, other := w.draw(rt), w.draw(rt)
	by := rapid.SampledFrom([]string{other.Event.ID, d.Event.ID, "gone"}).Draw(rt, "held by")
	w.must(rt, w.db.Exec("UPDATE t_message_consume SET held_by = ? WHERE consumer_group = ? AND event_id = ? AND held_by IS NOT NULL",
		by, w.group, d.Event.ID).Error)
	w.mend(rt)
}

func (w *world) mend(rt *rapid.T) int {
	freed, _, err := inbox.Mend(context.Background(), w.db, w.group, "")
	w.must(rt, err)
	return freed
}

// holds is what is true at every moment.
func (w *world) holds(rt *rapid.T) {
	for what, query := range map[string]string{
		"an effect without success, or twice, or success without effect": `
			SELECT count(*) FROM t_message_consume c WHERE consumer_group = @group
			AND (SELECT count(*) FROM t_effect e WHERE e.event_id = c.event_id) <> (status = 'SUCCESS')::int`,
		"an unfinished row without its message, or the other way round": `
			SELECT count(*) FROM t_message_consume c WHERE consumer_group = @group
			AND (SELECT count(*) FROM t_message_retry m WHERE (m.consumer_group, m.event_id) = (c.consumer_group, c.event_id))
				<> (status IN ('PROCESSING', 'RETRY', 'WAITING'))::int`,
		"a waiting row that nothing will wake": `
			SELECT count(*) FROM t_message_consume c WHERE consumer_group = @group AND status = 'WAITING' AND held_by IS NOT NULL
			AND NOT EXISTS (SELECT FROM t_message_consume h WHERE h.consumer_group = c.consumer_group AND h.event_id = c.held_by
				AND h.aggregate_id = c.aggregate_id AND h.aggregate_version < c.aggregate_version
				AND h.status IN ('PROCESSING', 'RETRY', 'WAITING', 'DEAD') AND NOT h.skipped)`,
		"a dead row without an open letter": `
			SELECT count(*) FROM t_message_consume c WHERE consumer_group = @group AND status = 'DEAD'
			AND NOT EXISTS (SELECT FROM t_dead_letter d WHERE d.consumer_group = c.consumer_group AND d.event_id = c.event_id
				AND d.error_class <> 'conflict' AND d.state = 'OPEN')`,
		"a row that counts less than nothing": `SELECT count(*) FROM t_message_consume WHERE consumer_group = @group AND retry_count < 0`,
	} {
		if n := w.number(query, map[string]any{"group": w.group}); n != 0 {
			rt.Fatalf("%d times: %s", n, what)
		}
	}
}

// comesToRest lets every worker succeed and every operator release, and then everything must be finished.
func (w *world) comesToRest(rt *rapid.T) {
	w.claimed = nil // all workers have died
	for range 200 {
		w.takes(rt, inbox.Claim)
		w.takes(rt, inbox.TakeOver)
		if len(w.claimed) == 0 {
			var letters []int64
			w.must(rt, w.db.Raw(`SELECT letter_id FROM t_dead_letter WHERE consumer_group = ? AND state = 'OPEN' AND error_class <> 'conflict'`, w.group).Scan(&letters).Error)
			if len(letters) == 0 {
				break
			}
			w.must(rt, w.tx(func(tx *gorm.DB) error { return inbox.Release(context.Background(), tx, w.group, letters[0], why) }))
			continue
		}
		d := w.claimed[len(w.claimed)-1]
		w.claimed = nil
		w.attempt(rt, *d, nil)
	}
	w.holds(rt)
	if n := w.number("SELECT count(*) FROM t_message_consume WHERE consumer_group = ? AND status NOT IN ('SUCCESS', 'REJECTED')", w.group); n != 0 {
		rt.Fatalf("%d rows never finish", n)
	}
}

func (w *world) number(query string, args ...any) (n int64) {
	w.t.Helper()
	if err := w.db.Raw(query, args...).Scan(&n).Error; err != nil {
		w.t.Fatal(err)
	}
	return n
}

// must lets a fenced settle pass: a late worker is told so, and that is right.
func (w *world) must(rt *rapid.T, err error) {
	if err != nil && !errors.Is(err, inbox.ErrFenced) {
		rt.Fatal(err)
	}
}
