package replay_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/lease"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/replay"
	"example.com/paycast/shared/testkit"
)

var anna = audit.By{Actor: "anna", Reason: "the build is mended"}

// bare are the replays of a group whose consumer does not run: nothing that has begun is ever decided about.
func (w *world) bare(lag *atomic.Int64) *replay.Replays {
	return &replay.Replays{
		Group: group, DB: w.db, Lease: lease.Rule{Lease: 5 * time.Minute, Deadline: time.Minute, Margin: time.Second}, Log: slog.New(slog.DiscardHandler),
		Lag: lag.Load, Nudge: func() {}, Metrics: replay.NewMetrics(prometheus.NewRegistry(), group),
	}
}

func (w *world) pausedBy(r *replay.Replays, id, cause string) {
	w.t.Helper()
	var job replay.Job
	w.eventually(func() (err error) {
		if job, err = r.Get(w.t.Context(), id); err == nil && job.State != replay.Paused {
			return context.DeadlineExceeded
		}
		return err
	})
	require.Contains(w.t, *job.Cause, cause)
	require.EqualValues(w.t, 1, w.count("t_audit WHERE verb = 'stopped itself' AND object = ?", "replay/"+id))
}

func TestReplayStopsWhenTheGroupFallsBehindOrTheLaneStandsStill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, task := w.start()
	w.letters("o", 3)
	require.NoError(t, task.Stop())
	var lag atomic.Int64
	lag.Store(100)
	r := w.bare(&lag)
	testkit.Run(t, "replays", r.Run)
	job, err := r.Plan(t.Context(), anna, replay.Selection{EventType: event.PaymentSucceeded}, 0, false)
	require.NoError(t, err)
	_, err = r.Do(t.Context(), anna, job.JobID, "run", replay.Confirmation{}, false)
	require.NoError(t, err)
	w.until(1, "t_replay_item WHERE state = 'BEGUN'")
	require.EqualValues(t, 2, w.count("t_replay_item WHERE state = 'PENDING'"), "nobody follows before the first is decided about")
	lag.Store(1101)
	w.pausedBy(r, job.JobID, "lag has grown by 1001 records")

	second, err := r.Plan(t.Context(), anna, replay.Selection{OrderNos: []string{"o-0", "o-1", "o-2"}}, 0, false)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"new": 2, "waiting": 1}, second.Forecasts)
	_, err = r.Do(t.Context(), anna, second.JobID, "run", replay.Confirmation{}, false)
	require.NoError(t, err)
	w.until(2, "t_replay_item WHERE state = 'BEGUN'")
	w.exec("UPDATE t_replay_item SET begun_at = now() - interval '2 minutes' WHERE state = 'BEGUN'")
	w.pausedBy(r, second.JobID, "the retry lane does not keep up")
}

func TestReplayStopsWhenPaymentDoesNotAnswerAndLosesNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.mended.Store(true)
	var ids []string
	for _, e := range w.events("o", 3) {
		ids = append(ids, e.ID)
	}
	job := w.plan(c, map[string]any{"event_ids": ids}, 0)
	w.down.Store(true)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	stopped := w.reaches(c, job.JobID, replay.Paused)
	require.Contains(t, *stopped.Cause, "payment did not send event")
	require.EqualValues(t, 3, stopped.States["PENDING"])
	w.down.Store(false)
	_, err = w.do(c, job.JobID, "resume", nil)
	require.NoError(t, err)
	w.reaches(c, job.JobID, replay.Done)
	require.EqualValues(t, 3, w.count("t_effect"))
}

func TestVersionsOfOneOrderKeepTheirOrderInAReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	first, second := consumertest.Paid("o-1", "ann"), consumertest.Canceled("o-1", "ann")
	testkit.Produce(t, w.broker.Brokers(), event.Topic, consumertest.Record(first), consumertest.Record(second))
	w.until(1, "t_message_consume WHERE status = 'DEAD'")
	w.until(1, "t_message_consume WHERE status = 'WAITING'")
	job := w.plan(c, map[string]any{"order_nos": []string{"o-1"}}, 0)
	require.Equal(t, map[string]int64{"new": 1, "waiting": 1}, job.Forecasts)
	w.mended.Store(true)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	w.reaches(c, job.JobID, replay.Done)
	w.until(2, "t_message_consume WHERE status = 'SUCCESS'")
	var order []string
	require.NoError(t, w.db.Raw("SELECT event_id FROM t_effect ORDER BY ctid").Scan(&order).Error)
	require.Equal(t, []string{first.ID, second.ID}, order)
}

func TestEverySeriesOfReplaysExistsFromTheStart(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	replay.NewMetrics(reg, group)
	n, err := testutil.GatherAndCount(reg, "replay_messages_total")
	require.NoError(t, err)
	require.Equal(t, 13, n)
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestRedeliveredEventThatIsStillBadIsParkedOnceHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	e := w.events("o", 1)[0]
	chosen := map[string]any{"event_ids": []string{e.ID}}
	job := w.plan(c, chosen, 0)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	require.Contains(t, *w.reaches(c, job.JobID, replay.Paused).Cause, "a dead letter again")
	require.EqualValues(t, 1, w.count("t_dead_letter WHERE attempts = 1 AND event_id = ? AND payload = ?", e.ID, e.Payload))

	// By hand, past any plan: a copy of what is parked changes nothing.
	payment := replay.Payment{Client: c}
	payment.Client.BaseURL = w.source
	require.NoError(t, payment.Redeliver(t.Context(), replay.Redelivery{By: anna, Group: group, EventIDs: []string{e.ID, e.ID}, ReplayID: "r-by-hand"}))
	last := w.events("last", 1)[0]
	w.mended.Store(true)
	require.NoError(t, payment.Redeliver(t.Context(), replay.Redelivery{By: anna, Group: group, EventIDs: []string{last.ID}}))
	w.until(1, "t_effect WHERE event_id = ?", last.ID)
	require.EqualValues(t, 1, w.count("t_dead_letter"))
	require.EqualValues(t, 1, w.count("t_message_consume WHERE event_id = ? AND status = 'DEAD'", e.ID))

	// Now it is a letter like any other.
	again := w.plan(c, chosen, 0)
	require.Equal(t, map[string]int64{"new": 1}, again.Forecasts)
	_, err = w.do(c, again.JobID, "run", nil)
	require.NoError(t, err)
	w.reaches(c, again.JobID, replay.Done)
	require.EqualValues(t, 1, w.count("t_effect WHERE event_id = ? AND mode = 'lane'", e.ID))
}

func TestRehearsalThatIsCutOffTellsWhatItHasSeenAndIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, task := w.start()
	w.letters("o", 3)
	require.NoError(t, task.Stop())
	r := w.bare(&atomic.Int64{})
	job, err := r.Plan(t.Context(), anna, replay.Selection{EventType: event.PaymentSucceeded}, 0, false)
	require.NoError(t, err)
	ctx, cutOff := context.WithCancel(t.Context())
	defer cutOff()
	tried := 0
	r.Try = func(ctx context.Context, _ inbox.Delivery) (inbox.Outcome, inbox.Trouble, error) {
		if tried++; tried == 2 {
			cutOff()
			return "", inbox.Trouble{Class: inbox.ClassTransient, Text: ctx.Err().Error()}, nil
		}
		return inbox.Applied, inbox.Trouble{}, nil
	}
	told, err := r.Rehearse(ctx, anna, job.JobID)
	require.NoError(t, err)
	require.Equal(t, replay.Rehearsal{JobID: job.JobID, Rehearsed: 1, Pending: 3, Results: map[string]int{"applied": 1}, Failures: []replay.Failed{}}, told)
	require.EqualValues(t, 1, w.count("t_audit WHERE verb = 'rehearse' AND detail LIKE '%; applied 1'"))
}

// TestReplayThatIsStoppedInTheMiddleOfAClaimHasBegunWhatItClaimed: left in its hands the message, and with it the job, would
// wait for the end of a lease.
func TestReplayThatIsStoppedInTheMiddleOfAClaimHasBegunWhatItClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, task := w.start()
	w.letters("o", 2)
	require.NoError(t, task.Stop())
	// A claim that is at its commit is not stopped by anybody any more.
	w.exec(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		LOOP
			BEGIN
				PERFORM pg_advisory_xact_lock(7);
				RETURN new;
			EXCEPTION WHEN query_canceled THEN NULL;
			END;
		END LOOP; END $$`)
	w.exec("CREATE TRIGGER wait BEFORE UPDATE ON t_replay_item FOR EACH ROW WHEN (new.state = 'CLAIMED') EXECUTE FUNCTION wait()")
	gate := w.db.WithContext(t.Context()).Begin()
	require.NoError(t, gate.Exec("SELECT pg_advisory_xact_lock(7)").Error)
	t.Cleanup(func() { gate.Rollback() })

	r := w.bare(&atomic.Int64{})
	r.Lease.Margin = soon
	job, err := r.Plan(t.Context(), anna, replay.Selection{EventType: event.PaymentSucceeded}, 0, false)
	require.NoError(t, err)
	_, err = r.Do(t.Context(), anna, job.JobID, "run", replay.Confirmation{}, false)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	replays := testkit.Run(t, "replays", func(context.Context) error { return r.Run(ctx) })
	w.until(1, "pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	stop()
	require.NoError(t, gate.Commit().Error)
	require.NoError(t, replays.Stop())
	w.exec("SELECT pg_advisory_xact_lock(7)") // the claim has ended, whoever waited for it
	require.Zero(t, w.count("t_replay_item WHERE state = 'CLAIMED'"))
	require.EqualValues(t, 1, w.count("t_replay_item WHERE state = 'BEGUN'"))
	require.EqualValues(t, 1, w.count("t_dead_letter WHERE state = 'RELEASED'"))
}

func TestReplayThatIsStoppedWhilePaymentSendsKnowsThatItHasSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	w.asked = stop
	r := w.bare(&atomic.Int64{})
	r.Lease.Margin = soon
	r.Source = replay.Payment{Client: ops.Client{BaseURL: w.source, Token: token}}
	job, err := r.Plan(t.Context(), anna, replay.Selection{EventIDs: []string{w.events("o", 1)[0].ID}}, 0, false)
	require.NoError(t, err)
	_, err = r.Do(t.Context(), anna, job.JobID, "run", replay.Confirmation{}, false)
	require.NoError(t, err)
	require.NoError(t, r.Run(ctx))
	require.EqualValues(t, 1, w.count("t_replay_item WHERE state = 'BEGUN'"))
}
