package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
)

var why = inbox.Decision{By: "ann", Reason: "the build is mended"}

func (l log) tx(fn func(tx *gorm.DB) error) error {
	return postgres.Transaction(context.Background(), l.db, fn)
}

// letter is the number of the only letter.
func (l log) letter() int64 {
	l.t.Helper()
	letters, err := inbox.Letters(l.t.Context(), l.db, "g", 0, inbox.Filter{Limit: 10})
	require.NoError(l.t, err)
	require.Len(l.t, letters, 1)
	return letters[0].LetterID
}

func TestAReleasedLetterRunsOnceMoreWithAllItsAttempts(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusDead)
	_, _, err := l.once(delivery(2), nil) // held behind it
	require.NoError(t, err)
	id := l.letter()
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", id, why) }))
	require.Equal(t, row{Status: "RETRY", RequestHash: delivery(1).Event.Hash(), Kept: 1, Letters: 1}, l.row(1))

	d := l.claim()
	require.Equal(t, delivery(1).Record, d.Record)
	_, ran, err := l.once(*d, nil)
	require.NoError(t, err)
	require.True(t, ran)
	require.EqualValues(t, 2, l.claim().Event.AggregateVersion, "what it held goes on")
	require.ErrorIs(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", id, why) }), inbox.ErrClosed)
}

func TestALetterThatDiesAgainIsOpenAgainAndStillOne(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusDead)
	id := l.letter()
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", id, why) }))
	_, err := l.fail(*l.claim(), inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	letters, err := inbox.Letters(t.Context(), l.db, "g", 0, inbox.Filter{Status: "OPEN", Limit: 10})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Equal(t, id, letters[0].LetterID)
	require.Equal(t, 2, letters[0].Attempts)
}

func TestADiscardedLetterLetsLaterVersionsGoOn(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusDead)
	_, _, err := l.once(delivery(2), nil)
	require.NoError(t, err)
	require.Nil(t, l.claim())
	id := l.letter()
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", id, why) }))
	r := l.row(1)
	require.Equal(t, "REJECTED", r.Status)
	require.Equal(t, "discarded", r.Outcome)
	require.EqualValues(t, 2, l.claim().Event.AggregateVersion)
}

func TestASkippedLetterStaysOpenAndHoldsNobody(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusDead)
	_, _, err := l.once(delivery(2), nil)
	require.NoError(t, err)
	id := l.letter()
	skip := func(tx *gorm.DB) error { return inbox.Skip(t.Context(), tx, "g", id) }
	require.NoError(t, l.tx(skip))
	require.Equal(t, "DEAD", l.row(1).Status)
	require.EqualValues(t, 2, l.claim().Event.AggregateVersion)
	out, ran, err := l.once(delivery(3), nil)
	require.NoError(t, err)
	require.Equal(t, inbox.Waiting, out, "behind version 2, which is claimed")
	require.False(t, ran)
	require.ErrorIs(t, l.tx(skip), inbox.ErrNotHolding)
}

func TestAnEventTypeMayHoldNobodyWhenItDies(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	d := delivery(1)
	d.SkipDead = true
	_, err := l.fail(d, inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	_, ran, err := l.once(delivery(2), nil)
	require.NoError(t, err)
	require.True(t, ran)
}

func TestAConflictIsNeverReleasedAndItsDiscardLeavesTheFirstAlone(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusSuccess)
	_, _, err := l.once(otherBody(delivery(1)), nil)
	require.NoError(t, err)
	id, before := l.letter(), l.row(1)
	require.ErrorIs(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", id, why) }), inbox.ErrNotReleasable)
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", id, why) }))
	require.Equal(t, before, l.row(1))
}

func TestWhatCannotBeReadIsReleasedOnlyByABuildThatCanReadIt(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	d := delivery(1)
	park := func(tx *gorm.DB) error {
		return inbox.Park(t.Context(), tx, d, inbox.Trouble{Class: inbox.ClassUndecodable, Text: "an older build could not read it"})
	}
	require.NoError(t, l.tx(park))
	require.NoError(t, l.tx(park), "the same record again")
	id := l.letter()
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", id, why) }))
	_, ran, err := l.once(*l.claim(), nil)
	require.NoError(t, err)
	require.True(t, ran)

	d.Record.Offset, d.Record.Value = 500, []byte("garbage")
	d.Record.Headers = nil
	d.Event.ID, d.Event.Type, d.Event.AggregateID = "", "", ""
	require.NoError(t, l.tx(park))
	var garbage int64
	require.NoError(t, l.db.Raw("SELECT letter_id FROM t_dead_letter WHERE event_id IS NULL").Scan(&garbage).Error)
	require.ErrorIs(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", garbage, why) }), inbox.ErrUnreadable)
	_, contents, err := inbox.Show(t.Context(), l.db, "g", garbage)
	require.NoError(t, err)
	require.Equal(t, d.Record.Value, contents.Payload)
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", garbage, why) }))
}

// TestAClosedLetterIsClosedWhateverElseIsWrongWithIt: who releases it looks for its cause in vain.
func TestAClosedLetterIsClosedWhateverElseIsWrongWithIt(t *testing.T) {
	t.Parallel()
	for wrong, change := range map[error]string{
		inbox.ErrUnreadable:    "payload = 'garbage', headers = '[]'",
		inbox.ErrAltered:       "payload = payload || ' '",
		inbox.ErrNotReleasable: `error_class = 'conflict', first_hash = payload_hash, first_topic = topic, first_partition = partition, first_offset = "offset"`,
	} {
		l := newLog(t)
		l.bring(1, inbox.StatusDead)
		id := l.letter()
		require.NoError(t, l.db.Exec("UPDATE t_dead_letter SET "+change).Error)
		release := func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", id, why) }
		require.ErrorIs(t, l.tx(release), wrong)
		require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", id, why) }), wrong)
		require.ErrorIs(t, l.tx(release), inbox.ErrClosed, wrong)
	}
}

func TestErasureEmptiesTheLettersOfOneUserAndOnlyThose(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	ann, bob, garbage := delivery(1), delivery(2), delivery(3)
	ann.Event.Payload = []byte(`{"user_id": "ann", "title": "anna\"s"}`)
	bob.Event.Payload, bob.Event.AggregateID = []byte(`{"user_id":"bob"}`), "o-2"
	garbage.Record.Value = []byte("\xff\x00\"ann\"")
	for _, d := range []*inbox.Delivery{&ann, &bob} {
		d.Record.Value, d.Record.Key, d.Record.Headers = d.Event.Payload, []byte(d.Event.AggregateID), d.Event.Headers()
		_, err := l.fail(*d, inbox.Failure{Outcome: inbox.Dead})
		require.NoError(t, err)
	}
	require.NoError(t, l.tx(func(tx *gorm.DB) error {
		return inbox.Park(t.Context(), tx, garbage, inbox.Trouble{Class: inbox.ClassUndecodable, Text: "garbage"})
	}))
	var erased inbox.Erased
	require.NoError(t, l.tx(func(tx *gorm.DB) (err error) {
		erased, err = inbox.Erase(t.Context(), tx, "g", "ann", why)
		return err
	}))
	require.Equal(t, inbox.Erased{Letters: 2}, erased)
	var left []string
	require.NoError(t, l.db.Raw("SELECT convert_from(payload, 'UTF8') FROM t_dead_letter WHERE payload IS NOT NULL").Scan(&left).Error)
	require.Equal(t, []string{`{"user_id":"bob"}`}, left)
	require.Equal(t, "REJECTED", l.row(1).Status, "what it held goes on")
	require.Equal(t, "DEAD", l.row(2).Status)
}

func TestOnlyClosedLettersAreDeletedInTime(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusDead)
	other := delivery(2)
	other.Event.AggregateID = "o-2"
	_, err := l.fail(other, inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	var first int64
	require.NoError(t, l.db.Raw("SELECT min(letter_id) FROM t_dead_letter").Scan(&first).Error)
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", first, why) }))
	swept, err := inbox.Sweep(t.Context(), l.db, "g", time.Hour)
	require.NoError(t, err)
	require.Zero(t, swept)
	swept, err = inbox.Sweep(t.Context(), l.db, "g", 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, swept)
	require.NotEqual(t, first, l.letter(), "the open one stays")
}
