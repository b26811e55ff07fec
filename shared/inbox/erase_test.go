package inbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/inbox"
)

// of is version v of an order whose payload names its user.
func of(user, order string, v int64) inbox.Delivery {
	d := delivery(v)
	d.Event.ID, d.Event.AggregateID = fmt.Sprint(order, "-", v), order
	d.Event.Payload = fmt.Appendf(nil, `{"user_id":%q,"v":%d}`, user, v)
	d.Record.Key, d.Record.Value, d.Record.Headers = []byte(order), d.Event.Payload, d.Event.Headers()
	return d
}

func (l log) erase(user string) (erased inbox.Erased) {
	l.t.Helper()
	require.NoError(l.t, l.tx(func(tx *gorm.DB) (err error) {
		erased, err = inbox.Erase(l.t.Context(), tx, "g", user, why)
		return err
	}))
	return erased
}

func TestErasureReachesTheRetryLaneAndFreesWhatIsHeld(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	var erased []string
	for order, f := range map[string]inbox.Failure{
		"o-retry": {Outcome: inbox.Retry, After: time.Hour}, "o-waiting": {Outcome: inbox.Waiting, After: time.Hour},
	} {
		_, err := l.fail(of("ann", order, 1), f)
		require.NoError(t, err)
		// Held behind it: another one of hers, and behind that one that does not name her.
		for v, user := range map[int64]string{2: "ann", 3: "nobody"} {
			out, _, err := l.once(of(user, order, v), nil)
			require.NoError(t, err)
			require.Equal(t, inbox.Waiting, out)
		}
		erased = append(erased, order+"-1", order+"-2")
	}
	_, err := l.fail(of("bob", "o-bob", 1), inbox.Failure{Outcome: inbox.Retry, After: time.Hour})
	require.NoError(t, err)

	got := l.erase("ann")
	require.ElementsMatch(t, erased, got.Events)
	require.Zero(t, got.Letters)
	require.EqualValues(t, 4, l.count("t_message_consume WHERE status = 'REJECTED' AND outcome = 'discarded'"))
	require.Zero(t, l.count(`t_message_retry WHERE position('"ann"' IN convert_from(payload, 'UTF8')) > 0`))
	require.EqualValues(t, 1, l.count("t_message_retry WHERE event_id = 'o-bob-1'"), "nobody else's")
	for range 2 {
		d := l.claim()
		require.NotNil(t, d, "what was held is due")
		require.EqualValues(t, 3, d.Event.AggregateVersion)
		_, ran, err := l.once(*d, nil)
		require.NoError(t, err)
		require.True(t, ran)
	}
	out, ran, err := l.once(of("ann", "o-retry", 1), nil)
	require.NoError(t, err)
	require.False(t, ran)
	require.Equal(t, inbox.Duplicate, out, "nor does it come back from Kafka")
	require.Equal(t, inbox.Erased{}, l.erase("ann"))
}

func TestWhoIsCalledLikeAWordInOthersMessagesIsErasedAlone(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	bobs := of("bob", "o-1", 1)
	bobs.Event.Payload = []byte(`{"user_id":"bob","currency":"EUR","title":"ann"}`)
	bobs.Record.Value, bobs.Record.Headers = bobs.Event.Payload, bobs.Event.Headers()
	dead := bobs
	dead.Event.ID, dead.Event.AggregateID = "o-2-1", "o-2"
	dead.Record.Headers = dead.Event.Headers()
	_, err := l.fail(bobs, inbox.Failure{Outcome: inbox.Retry, After: time.Hour})
	require.NoError(t, err)
	_, err = l.fail(dead, inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	for _, user := range []string{"EUR", "ann", "user_id"} {
		got := l.erase(user)
		require.Empty(t, got.Events, user)
		require.Zero(t, got.Letters, user)
	}
	got := l.erase("bob")
	require.Equal(t, []string{"o-1-1"}, got.Events)
	require.Equal(t, 1, got.Letters)
}

func TestWhatAWorkerHasInHandWhenItIsErasedIsNeitherAppliedNorKept(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.fail(of("ann", "o-1", 1), inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	inHand := l.claim()
	require.Equal(t, []string{"o-1-1"}, l.erase("ann").Events)
	_, ran, err := l.once(*inHand, nil)
	require.ErrorIs(t, err, inbox.ErrFenced)
	require.False(t, ran)
	for _, out := range []inbox.Outcome{inbox.Retry, inbox.Waiting, inbox.Dead} {
		_, err = l.fail(*inHand, inbox.Failure{Outcome: out})
		require.ErrorIs(t, err, inbox.ErrFenced)
	}
	require.ErrorIs(t, inbox.GiveBack(t.Context(), l.db, *inHand, 0), inbox.ErrFenced)
	require.Zero(t, l.count("t_message_retry"))
	require.Zero(t, l.count("t_dead_letter"))
	require.Zero(t, l.count("t_effect"))
}

func TestAMessageThatIsBothInTheLaneAndALetterIsErasedInBoth(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.fail(of("ann", "o-1", 1), inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	id := l.letter()
	require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", id, why) }))
	require.Equal(t, inbox.Erased{Letters: 1, Events: []string{"o-1-1"}}, l.erase("ann"))
	require.Zero(t, l.count("t_message_retry"))
	require.Zero(t, l.count("t_dead_letter WHERE payload IS NOT NULL"))
	require.EqualValues(t, 1, l.count("t_message_consume WHERE status = 'REJECTED'"))
}

func (l log) count(from string) (n int64) {
	l.t.Helper()
	require.NoError(l.t, l.db.Raw("SELECT count(*) FROM "+from).Scan(&n).Error)
	return n
}

func TestWhatEntersTheLaneDuringAnErasureIsErasedAsWell(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	_, err := l.fail(of("ann", "o-1", 1), inbox.Failure{Outcome: inbox.Dead})
	require.NoError(t, err)
	_, err = l.fail(of("ann", "o-2", 1), inbox.Failure{Outcome: inbox.Retry})
	require.NoError(t, err)
	// The row of o-2 is not there at the first look, as when somebody releases its letter at that moment.
	require.NoError(t, l.db.Exec(`
		CREATE TABLE meanwhile AS SELECT * FROM t_message_retry; DELETE FROM t_message_retry;
		CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO t_message_retry SELECT * FROM meanwhile; DELETE FROM meanwhile; RETURN NULL; END $$;
		CREATE TRIGGER f AFTER UPDATE OF payload ON t_dead_letter FOR EACH ROW EXECUTE FUNCTION f()`).Error)
	require.Equal(t, inbox.Erased{Letters: 1, Events: []string{"o-2-1"}}, l.erase("ann"))
	require.Zero(t, l.count("t_message_retry"))
}
