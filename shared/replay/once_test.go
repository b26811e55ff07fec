package replay_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/replay"
	"example.com/paycast/shared/testkit"
)

func TestRunGoesOneThenTenThenTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, task := w.start()
	w.letters("o", 15)
	require.NoError(t, task.Stop()) // from here on the test decides what becomes of a message
	var lag atomic.Int64
	r := w.bare(&lag)
	testkit.Run(t, "replays", r.Run)
	job, err := r.Plan(t.Context(), anna, replay.Selection{EventType: event.PaymentSucceeded}, 1000, false)
	require.NoError(t, err)
	_, err = r.Do(t.Context(), anna, job.JobID, "run", replay.Confirmation{}, false)
	require.NoError(t, err)
	for _, stage := range []struct {
		name  string
		begun int64
		left  int64
	}{{"ONE", 1, 14}, {"TEN", 10, 4}, {"REST", 4, 0}} {
		w.until(stage.begun, "t_replay_item WHERE state = 'BEGUN'")
		require.Equal(t, stage.left, w.count("t_replay_item WHERE state = 'PENDING'"), stage.name)
		require.EqualValues(t, 1, w.count("t_replay_job WHERE stage = ? AND state = 'RUNNING'", stage.name))
		w.exec("UPDATE t_message_consume SET status = 'SUCCESS', outcome = 'applied', next_retry_at = NULL WHERE status = 'RETRY'")
	}
	w.until(1, "t_replay_job WHERE state = 'DONE'")
}

func TestSamePlanRunTwiceRepeatsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.letters("o", 3)
	w.exec("UPDATE t_message_consume SET first_received_at = now() - interval '10 days'")
	w.mended.Store(true)
	first, second := w.plan(c, openLetters, 0), w.plan(c, openLetters, 0)
	require.Equal(t, first.IDsHash, second.IDsHash)
	for _, job := range []replay.Job{first, second} {
		_, err := w.do(c, job.JobID, "run", nil)
		require.NoError(t, err)
		w.reaches(c, job.JobID, replay.Done)
	}
	require.Equal(t, map[string]int64{"decided": 3}, w.get(c, second.JobID).Results)
	require.EqualValues(t, 3, w.count("t_effect"))
	// What the handler is told: the road, whose replay it is, and since when the message is there.
	require.EqualValues(t, 3, w.count(`t_effect WHERE mode = 'lane' AND replay_id = ? AND attempt = 1
		AND first_seen BETWEEN now() - interval '11 days' AND now() - interval '9 days'`, first.JobID))
}

func TestReplayOfAnEventThatIsBeingHandledAppliesItOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inside, finish := make(chan struct{}), make(chan struct{})
	var handled atomic.Int64
	w.mended.Store(true)
	w.handler = consumer.InTransaction(func(ctx context.Context, tx *gorm.DB, e event.Event) error {
		if handled.Add(1) == 1 {
			close(inside)
			<-finish
		}
		return w.handle(ctx, tx, e)
	})
	c, _ := w.start()
	e := w.events("o", 1)[0]
	testkit.Produce(t, w.broker.Brokers(), event.Topic, w.sent[e.ID])
	<-inside // and nothing of it is committed, so the plan cannot know
	job := w.plan(c, map[string]any{"event_ids": []string{e.ID}}, 0)
	require.Equal(t, map[string]int64{"new": 1}, job.Forecasts)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	w.until(1, "t_replay_item WHERE state = 'BEGUN'")
	close(finish)
	require.Equal(t, map[string]int64{"applied": 1}, w.reaches(c, job.JobID, replay.Done).Results)
	last := consumertest.Canceled("o-0", "ann") // behind the second copy, as it has the same key
	w.sent[last.ID] = consumertest.Record(last)
	payment := replay.Payment{Client: c}
	payment.Client.BaseURL = w.source
	require.NoError(t, payment.Redeliver(t.Context(), replay.Redelivery{By: anna, Group: group, EventIDs: []string{last.ID}}))
	w.until(1, "t_effect WHERE event_id = ?", last.ID)
	require.EqualValues(t, 1, w.count("t_effect WHERE event_id = ?", e.ID))
}

func TestReplayKilledAfterPaymentHasSentAsksAgainAndAppliesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mended.Store(true)
	var sent atomic.Int64
	w.asked = func() {
		if sent.Add(1) == 1 { // the one who asked dies: another process may take the message over, and nobody knows of the answer
			w.exec("UPDATE t_replay_item SET owner_token = 'of the dead', lease_until = now() - interval '1 second' WHERE state = 'CLAIMED'")
		}
	}
	c, _ := w.start()
	e := w.events("o", 1)[0]
	job := w.plan(c, map[string]any{"event_ids": []string{e.ID}}, 0)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"applied": 1}, w.reaches(c, job.JobID, replay.Done).Results)
	require.EqualValues(t, 2, sent.Load())
	require.EqualValues(t, 1, w.count("t_effect"))
}

func TestLetterWhoseBytesWereAlteredStopsTheReplayAndIsNotHandled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.letters("o", 3)
	w.mended.Store(true)
	job := w.plan(c, openLetters, 0)
	w.exec("UPDATE t_dead_letter SET payload = payload || ' ' WHERE letter_id = (SELECT min(letter_id) FROM t_dead_letter)")
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	stopped := w.reaches(c, job.JobID, replay.Paused)
	require.Contains(t, *stopped.Cause, "does not hold the bytes that were received")
	require.Equal(t, map[string]int64{"altered": 1}, stopped.Results)
	require.Zero(t, w.count("t_effect"))
	require.EqualValues(t, 3, w.count("t_dead_letter WHERE state = 'OPEN'"))

	_, err = w.do(c, job.JobID, "resume", nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"altered": 1, "applied": 2}, w.reaches(c, job.JobID, replay.Done).Results)
}

func TestEffectOutsideIsNotRehearsedAndThePreflightSaysWhatToExpect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var writes atomic.Int64
	w.handler = consumer.Outside(func(context.Context, event.Event) error {
		writes.Add(1)
		if !w.mended.Load() {
			return consumer.BadData(errors.New("this build cannot"))
		}
		return nil
	})
	c, _ := w.start()
	w.letters("o", 3)
	job := w.plan(c, openLetters, 0)
	require.NoError(t, c.PostJSON(t.Context(), "/ops/dead-letters/"+strconv.FormatInt(w.letterOf("o-0"), 10)+"/discard", body(nil), nil)) // since the plan
	before := writes.Load()
	var told replay.Rehearsal
	require.NoError(t, c.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/rehearse", body(nil), &told))
	require.Zero(t, told.Rehearsed)
	require.Contains(t, told.Refused, "outside its database")
	require.Contains(t, told.Refused, "begins with one message")
	require.Equal(t, map[string]int{"new": 2, "decided": 1}, told.Results)
	require.Equal(t, before, writes.Load(), "nothing is written")
	require.EqualValues(t, 1, w.count("t_audit WHERE verb = 'preflight' AND actor = 'ann' AND detail LIKE '%decided 1, new 2'"))
	require.Zero(t, w.count("t_audit WHERE verb = 'rehearse'"))

	w.mended.Store(true)
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"applied": 2, "decided": 1}, w.reaches(c, job.JobID, replay.Done).Results)
}

func TestEndedReplaysAndClosedLettersAreDeletedInTimeAndTheirAuditStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, task := w.start()
	w.letters("o", 3)
	w.mended.Store(true)
	jobs := map[string]replay.Job{}
	for _, name := range []string{"done", "canceled", "planned", "paused", "young"} {
		jobs[name] = w.plan(c, openLetters, 0)
	}
	_, err := w.do(c, jobs["canceled"].JobID, "cancel", nil)
	require.NoError(t, err)
	for _, name := range []string{"done", "young"} {
		_, err := w.do(c, jobs[name].JobID, "run", nil)
		require.NoError(t, err)
		w.reaches(c, jobs[name].JobID, replay.Done)
	}
	require.NoError(t, task.Stop())
	w.exec("UPDATE t_replay_job SET state = 'PAUSED', cause = 'c', stage = 'ONE', started_by = 'ann', started_at = now() WHERE job_id = ?", jobs["paused"].JobID)
	w.exec(`UPDATE t_replay_job SET created_at = now() - interval '91 days', started_at = started_at - interval '91 days',
		ended_at = ended_at - interval '91 days' WHERE job_id <> ?`, jobs["young"].JobID)
	w.exec("UPDATE t_dead_letter SET closed_at = now() - interval '91 days' WHERE aggregate_id = 'o-0'")
	w.exec(`UPDATE t_dead_letter SET first_seen_at = now() - interval '91 days', state = 'OPEN', closed_by = NULL, closed_reason = NULL, closed_at = NULL
		WHERE aggregate_id = 'o-1'`)
	audited := w.count("t_audit")

	w.change = func(cfg *consumer.Config) {
		require.Equal(t, 90*24*time.Hour, cfg.ReplayRetention, "the default")
		require.Equal(t, 90*24*time.Hour, cfg.LetterRetention, "the default")
	}
	c, _ = w.start()
	w.until(0, "t_dead_letter WHERE aggregate_id = 'o-0'")
	require.EqualValues(t, 2, w.count("t_dead_letter"), "the open one stays, however old")
	w.until(2, "t_replay_job")
	require.Equal(t, replay.Paused, w.get(c, jobs["paused"].JobID).State, "it is somebody's work")
	require.Equal(t, replay.Done, w.get(c, jobs["young"].JobID).State)
	require.EqualValues(t, 6, w.count("t_replay_item"), "the frozen ids go with their jobs")
	err = c.GetJSON(t.Context(), "/ops/replays/"+jobs["done"].JobID, nil, nil)
	refused(t, err, http.StatusNotFound, "no such replay")
	require.Equal(t, audited, w.count("t_audit"))
}

func TestEachStepLeavesARowThatNobodyCanChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.start()
	w.letters("o", 2)
	job := w.plan(c, openLetters, 0)
	require.NoError(t, c.PostJSON(t.Context(), "/ops/replays/"+job.JobID+"/rehearse", body(nil), nil))
	_, err := w.do(c, job.JobID, "run", nil)
	require.NoError(t, err)
	w.reaches(c, job.JobID, replay.Paused) // by itself
	w.mended.Store(true)
	_, err = w.do(c, job.JobID, "resume", nil)
	require.NoError(t, err)
	w.reaches(c, job.JobID, replay.Done)
	other := w.plan(c, openLetters, 0)
	_, err = w.do(c, other.JobID, "cancel", nil)
	require.NoError(t, err)

	hash := job.IDsHash[:12]
	for verb, row := range map[string]struct{ reason, detail string }{
		"plan":           {"the build is mended", "2 messages, hash " + hash + "; PENDING 2"},
		"rehearse":       {"the build is mended", "2 messages, hash " + hash + "; PENDING 2; transient 2"},
		"run":            {"the build is mended", "2 messages, hash " + hash + "; PENDING 2"},
		"stopped itself": {"event %", "2 messages, hash " + hash + "; PENDING 1, SETTLED 1; dead 1"},
		"resume":         {"the build is mended", "2 messages, hash " + hash + "; PENDING 1, SETTLED 1; dead 1"},
		"ended":          {"every message is settled", "2 messages, hash " + hash + "; SETTLED 2; applied 1, dead 1"},
	} {
		require.EqualValues(t, 1, w.count("t_audit WHERE verb = ? AND actor = 'ann' AND object = ? AND reason LIKE ? AND detail = ?",
			verb, "replay/"+job.JobID, row.reason, row.detail), verb)
	}
	require.EqualValues(t, 1, w.count("t_audit WHERE verb = 'cancel' AND object = ?", "replay/"+other.JobID))
	require.EqualValues(t, 2, w.count("t_audit WHERE verb = 'release' AND actor = 'ann' AND detail = ?", "by replay "+job.JobID))
	for _, sql := range []string{"UPDATE t_audit SET actor = 'eve'", "DELETE FROM t_audit", "TRUNCATE t_audit"} {
		require.ErrorContains(t, w.db.Exec(sql).Error, "append-only")
	}
}
