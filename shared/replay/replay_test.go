package replay_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/replay"
)

var openLetters = map[string]any{"event_type": event.PaymentSucceeded}

func refused(t *testing.T, err error, status int, words string) {
	t.Helper()
	var told *ops.StatusError
	require.ErrorAs(t, err, &told)
	require.Equal(t, status, told.Status, told.Detail)
	require.Contains(t, told.Detail, words)
}

func TestPlanFreezesWhatRunsAndEachIsAppliedOnceWithItsOwnIDAndBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	first := w.letters("first", 15)
	var tried replay.Job
	require.NoError(t, c.PostJSON(t.Context(), "/ops/replays?dry_run=true", body(map[string]any{"selection": openLetters}), &tried))
	require.Equal(t, 15, tried.Items)
	require.Zero(t, w.count("t_replay_job")+w.count("t_audit"), "a dry run keeps nothing")
	job := w.plan(c, openLetters, 200)
	require.Equal(t, 15, job.Items)
	require.Equal(t, map[string]int64{"new": 15}, job.Forecasts)
	require.Len(t, job.IDsHash, 64)
	w.letters("later", 2) // match too, but came after the plan

	w.mended.Store(true)
	dry, err := w.do(c, job.JobID, "run?dry_run=true", nil)
	require.NoError(t, err)
	require.Equal(t, "RUNNING", dry.State)
	require.Equal(t, "PLANNED", w.get(c, job.JobID).State, "a dry run changes nothing")
	_, err = w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	done := w.reaches(c, job.JobID, "DONE")
	require.Equal(t, map[string]int64{"applied": 15}, done.Results)
	require.EqualValues(t, 15, w.count("t_effect"))
	for _, e := range first {
		require.EqualValues(t, 1, w.count("t_effect WHERE event_id = ? AND payload = ? AND mode = 'lane' AND replay_id = ?", e.ID, string(e.Payload), job.JobID))
	}
	require.EqualValues(t, 2, w.count("t_dead_letter WHERE state = 'OPEN'"))
	require.EqualValues(t, 15, w.count("t_dead_letter WHERE state = 'RELEASED' AND closed_by = 'ann'"))
	_, err = w.do(c, job.JobID, "run", nil)
	refused(t, err, http.StatusConflict, "it is DONE")

	// Whatever is chosen, what is SUCCESS is not done again.
	again := w.plan(c, map[string]any{"order_nos": []string{"first-0", "first-1"}}, 0)
	require.Equal(t, map[string]int64{"already_applied": 2}, again.Results)
	_, err = w.do(c, again.JobID, "run", nil)
	require.NoError(t, err)
	w.reaches(c, again.JobID, "DONE")
	require.EqualValues(t, 15, w.count("t_effect"))
	recent := w.plan(c, map[string]any{"from": time.Now().Add(-time.Hour), "to": time.Now().Add(time.Hour)}, 0)
	require.Equal(t, map[string]int64{"new": 2}, recent.Forecasts, "what is done is shown only when it is named")
	err = c.PostJSON(t.Context(), "/ops/replays", body(map[string]any{"selection": map[string]any{"to": time.Now().Add(-time.Hour)}}), nil)
	refused(t, err, http.StatusBadRequest, "nothing of this group matches")
	for _, verb := range []string{"plan", "run", "ended"} {
		require.EqualValues(t, 1, w.count("t_audit WHERE verb = ? AND object = ?", verb, "replay/"+job.JobID), verb)
	}
}

func TestRunIsRefusedWhenTheFrozenIDsWereAltered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.letters("o", 2)
	job := w.plan(c, openLetters, 0)
	w.exec("DELETE FROM t_replay_item WHERE position = 2")
	_, err := w.do(c, job.JobID, "run", nil)
	refused(t, err, http.StatusConflict, "not those that were planned")
	err = c.PostJSON(t.Context(), "/ops/replays", body(map[string]any{"selection": map[string]any{}}), nil)
	refused(t, err, http.StatusBadRequest, "not everything there is")
	err = c.PostJSON(t.Context(), "/ops/replays", body(map[string]any{"selection": map[string]any{"classes": "transient"}}), nil)
	refused(t, err, http.StatusBadRequest, "cannot be read")
	err = c.PostJSON(t.Context(), "/ops/replays", map[string]any{"selection": openLetters}, nil)
	refused(t, err, http.StatusBadRequest, "who you are")
}

func TestRehearsalTellsWhatWouldHappenAndLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.letters("o", 3)
	job := w.plan(c, openLetters, 0)
	var told struct {
		Rehearsed int
		Results   map[string]int
		Failures  []map[string]any
	}
	for _, mended := range []bool{false, true} {
		w.mended.Store(mended)
		require.NoError(t, c.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/rehearse", body(nil), &told))
		require.Equal(t, 3, told.Rehearsed)
		if mended {
			require.Equal(t, map[string]int{"applied": 3}, told.Results)
			continue
		}
		require.Equal(t, map[string]int{"transient": 3}, told.Results)
		require.Contains(t, told.Failures[0]["error_text"], "this build cannot")
		told.Results = nil
	}
	require.Zero(t, w.count("t_effect"))
	require.EqualValues(t, 3, w.count("t_message_consume WHERE status = 'DEAD'"))
	require.EqualValues(t, 3, w.count("t_dead_letter WHERE state = 'OPEN'"))
	require.EqualValues(t, 3, w.get(c, job.JobID).States["PENDING"])
	require.EqualValues(t, 2, w.count("t_audit WHERE verb = 'rehearse'"))
}

func TestCanaryStopsAtTheFirstMessageThatIsStillBad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.letters("o", 5)
	require.EqualValues(t, 5, w.count("t_dead_letter WHERE attempts = 2"))
	job := w.plan(c, openLetters, 0)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	stopped := w.reaches(c, job.JobID, "PAUSED")
	require.Contains(t, *stopped.Cause, "a dead letter again")
	require.Equal(t, map[string]int64{"dead": 1}, stopped.Results)
	require.EqualValues(t, 4, stopped.States["PENDING"], "nobody else was touched")
	require.EqualValues(t, 5, w.count("t_dead_letter"), "the letter is the same one")
	require.EqualValues(t, 1, w.count("t_dead_letter WHERE attempts = 3 AND state = 'OPEN'"))
	require.EqualValues(t, 1, w.count("t_audit WHERE verb = 'stopped itself'"))

	// Going on begins with one message again.
	w.mended.Store(true)
	_, err = w.do(c, job.JobID, "resume", nil)
	require.NoError(t, err)
	done := w.reaches(c, job.JobID, "DONE")
	require.Equal(t, map[string]int64{"dead": 1, "applied": 4}, done.Results)
	require.EqualValues(t, 4, w.count("t_effect"))
}

func TestRunThatIsKilledHalfWayGoesOnAndRepeatsNoEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var handled atomic.Int64
	w.handler = consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		if w.mended.Load() && handled.Add(1) == 6 { // it keeps the second stage open until its process is told to stop
			<-ctx.Done()
			return ctx.Err()
		}
		return w.handle(ctx, tx, e)
	})
	c, task := w.start()
	w.letters("o", 30)
	w.mended.Store(true)
	job := w.plan(c, openLetters, 100)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	w.until(10, "t_effect")
	require.NoError(t, task.Stop())
	require.EqualValues(t, 1, w.count("t_replay_job WHERE state = 'RUNNING' AND stage = 'TEN'"))
	// What a kill between claim and commit leaves, and a letter that somebody has released meanwhile.
	w.exec(`UPDATE t_replay_item SET state = 'CLAIMED', owner_token = 'dead', lease_until = now()
	        WHERE position = (SELECT min(position) FROM t_replay_item WHERE state = 'PENDING')`)
	w.leasesRunOut()
	require.NoError(t, postgres.Transaction(t.Context(), w.db, func(tx *gorm.DB) error {
		var last int64
		require.NoError(t, tx.Raw("SELECT max(letter_id) FROM t_dead_letter").Scan(&last).Error)
		return inbox.Release(t.Context(), tx, group, last, inbox.Decision{By: "bob", Reason: "I was first"})
	}))
	c, _ = w.start()
	_, _ = w.start()
	done := w.reaches(c, job.JobID, "DONE")
	require.EqualValues(t, 30, done.Results["applied"]+done.Results["decided"]+done.Results["already_applied"], done.Results)
	w.until(30, "t_effect")
	require.EqualValues(t, 30, w.count("(SELECT DISTINCT event_id FROM t_effect) e"))
}

func TestPauseAndCancelStopWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	finish := make(chan struct{})
	w.handler = consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		if w.mended.Load() {
			<-finish // so the first stage lasts
		}
		return w.handle(ctx, tx, e)
	})
	c, _ := w.start()
	w.letters("o", 3)
	w.mended.Store(true)
	job, second := w.plan(c, openLetters, 5), w.plan(c, openLetters, 5)
	_, err := w.do(c, job.JobID, "pause", nil)
	refused(t, err, http.StatusConflict, "it is PLANNED")
	_, err = w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	w.until(1, "t_replay_item WHERE state = 'BEGUN'")
	_, err = w.do(c, second.JobID, "run", nil)
	refused(t, err, http.StatusConflict, "another replay")
	_, err = w.do(c, job.JobID, "run", nil)
	refused(t, err, http.StatusConflict, "it is RUNNING")
	paused, err := w.do(c, job.JobID, "pause", nil)
	require.NoError(t, err)
	require.Contains(t, *paused.Cause, "paused by ann")
	close(finish)
	w.until(1, "t_replay_item WHERE state = 'SETTLED' AND result = 'applied'") // what has begun is finished
	canceled, err := w.do(c, job.JobID, "cancel", nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, canceled.States["PENDING"])
	require.EqualValues(t, 2, w.count("t_dead_letter WHERE state = 'OPEN'"))
	require.EqualValues(t, 1, w.count("t_effect"))
	_, err = w.do(c, job.JobID, "resume", nil)
	refused(t, err, http.StatusConflict, "it is CANCELED")
	require.EqualValues(t, 2, w.count("t_audit WHERE verb IN ('pause', 'cancel') AND object = ?", "replay/"+job.JobID))
}

func TestWherePeopleReceiveSomethingTheirNumberMustBeConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.change = func(cfg *consumer.Config) { cfg.ReachesPeople = true }
	c, _ := w.start()
	events := w.letters("o", 3)
	w.mended.Store(true)
	job := w.plan(c, openLetters, 0)
	require.EqualValues(t, 3, job.People)
	for _, people := range []int{0, 1} {
		_, err := w.do(c, job.JobID, "run", map[string]any{"people": people})
		refused(t, err, http.StatusConflict, "3 of these messages may reach somebody")
	}
	require.Zero(t, w.count("t_effect"))
	_, err := w.do(c, job.JobID, "run", map[string]any{"people": 3})
	require.NoError(t, err)
	w.reaches(c, job.JobID, "DONE")
	require.EqualValues(t, 3, w.count("t_effect"))

	// Reapply asks as well: this one would be received a second time.
	ask := body(map[string]any{"event_id": events[0].ID})
	err = c.PostJSON(t.Context(), "/ops/reapply", ask, nil)
	refused(t, err, http.StatusConflict, "1 message may reach somebody")
	require.EqualValues(t, 3, w.count("t_message_consume WHERE status = 'SUCCESS'"))
	ask["people"] = 1
	require.NoError(t, c.PostJSON(t.Context(), "/ops/reapply", ask, nil))
	w.until(4, "t_effect")
}

func TestEventsThatTheGroupHasNotSeenComeFromPaymentToThisGroupAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.mended.Store(true)
	events := w.events("missing", 4)
	ids := []string{"no-such-event"}
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	job := w.plan(c, map[string]any{"event_ids": ids}, 0)
	require.Equal(t, map[string]int64{"new": 4, "unknown": 1}, job.Forecasts)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	w.reaches(c, job.JobID, "DONE")
	for _, e := range events {
		require.EqualValues(t, 1, w.count("t_effect WHERE event_id = ? AND payload = ? AND mode = 'redelivery' AND replay_id = ?", e.ID, string(e.Payload), job.JobID))
		require.EqualValues(t, 1, w.count("t_message_consume WHERE event_id = ? AND request_hash = ?", e.ID, e.Hash()))
	}
}

func TestEffectThatWasLostIsAppliedAgainAndNothingElseIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.mended.Store(true)
	events := w.events("o", 2)
	err := c.PostJSON(t.Context(), "/ops/reapply", body(map[string]any{"event_id": events[0].ID}), nil)
	refused(t, err, http.StatusConflict, "has not seen the event")
	job := w.plan(c, map[string]any{"event_ids": []string{events[0].ID, events[1].ID}}, 0)
	_, err = w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	w.reaches(c, job.JobID, "DONE")
	w.exec("DELETE FROM t_effect WHERE event_id = ?", events[0].ID) // a person's slip

	ask := body(map[string]any{"event_id": events[0].ID})
	require.NoError(t, c.PostJSON(t.Context(), "/ops/reapply?dry_run=true", ask, nil))
	require.EqualValues(t, 2, w.count("t_message_consume WHERE status = 'SUCCESS'"))
	require.NoError(t, c.PostJSON(t.Context(), "/ops/reapply", ask, nil))
	w.until(1, "t_effect WHERE event_id = ? AND payload = ?", events[0].ID, string(events[0].Payload))
	w.until(2, "t_message_consume WHERE status = 'SUCCESS'")
	require.EqualValues(t, 2, w.count("t_effect"))
	require.EqualValues(t, 1, w.count("t_audit WHERE verb = 'reapply' AND object = ?", "event/"+events[0].ID))

	// Another body under the same id is not what was applied.
	forged := w.sent[events[1].ID]
	forged.Value = append([]byte(" "), forged.Value...)
	w.sent[events[1].ID] = forged
	err = c.PostJSON(t.Context(), "/ops/reapply", body(map[string]any{"event_id": events[1].ID}), nil)
	refused(t, err, http.StatusConflict, "with this body")
	delete(w.sent, events[1].ID)
	err = c.PostJSON(t.Context(), "/ops/reapply", body(map[string]any{"event_id": events[1].ID}), nil)
	refused(t, err, http.StatusConflict, "do not have this event")
}

func TestTwoProcessesTogetherKeepTheRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	_, _ = w.start()
	w.letters("o", 51)
	w.mended.Store(true)
	job := w.plan(c, openLetters, 10)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	w.reaches(c, job.JobID, "DONE")
	// Of the 40 behind the stages the first second's worth may come at once, and the rest takes 2.9 seconds. The stages' own
	// waits prove nothing.
	var took float64
	require.NoError(t, w.db.Raw("SELECT extract(epoch FROM max(begun_at) - min(begun_at)) FROM t_replay_item WHERE position > 11").Scan(&took).Error)
	require.Greater(t, took, 2.3, "the first one may begin late")
}
