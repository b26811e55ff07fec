package inbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/inbox"
)

func TestALetterWhoseBytesWereChangedIsNotReleased(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		"payload = payload || ' '",
		`headers = convert_to(replace(convert_from(headers, 'UTF8'), ']', ',{"key":"eA==","value":null}]'), 'UTF8')`,
		"headers = 'no JSON'",
	} {
		l := newLog(t)
		l.bring(1, inbox.StatusDead)
		id, before := l.letter(), l.row(1)
		require.NoError(t, l.db.Exec("UPDATE t_dead_letter SET "+change).Error)
		require.ErrorIs(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", id, why) }), inbox.ErrAltered, change)
		_, _, err := inbox.LetterDelivery(t.Context(), l.db, "g", id)
		require.ErrorIs(t, err, inbox.ErrAltered, change)
		require.Equal(t, before, l.row(1), change)
		_, _, err = inbox.Show(t.Context(), l.db, "g", id)
		require.NoError(t, err, change)
		require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", id, why) }), change)
		require.Equal(t, "REJECTED", l.row(1).Status, "whatever it held goes on")
	}
}

// TestALetterWhosePlaceOrNameWasChangedStillEndsItsRow: otherwise the row would be dead for ever, with no letter to open.
func TestALetterWhosePlaceOrNameWasChangedStillEndsItsRow(t *testing.T) {
	t.Parallel()
	for _, change := range []string{
		"event_id = NULL", "event_id = 'event-9'", "event_id = 'event-2'", "aggregate_id = NULL", "aggregate_id = 'o-9'",
		"topic = 'elsewhere'", "partition = partition + 100", `"offset" = 0`,
		"event_id = NULL, event_type = NULL, aggregate_id = NULL, headers = 'no JSON'",
	} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			l.bring(1, inbox.StatusDead)
			_, _, err := l.once(delivery(2), nil)
			require.NoError(t, err)
			other := delivery(7)
			other.Event.AggregateID = "o-7"
			_, err = l.fail(other, inbox.Failure{Outcome: inbox.Dead})
			require.NoError(t, err)
			var id int64
			require.NoError(t, l.db.Raw("SELECT letter_id FROM t_dead_letter WHERE event_id = 'event-1'").Scan(&id).Error)
			require.NoError(t, l.db.Exec("UPDATE t_dead_letter SET "+change+" WHERE letter_id = ?", id).Error)

			require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Skip(t.Context(), tx, "g", id) }))
			require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", id, why) }))
			require.Equal(t, "REJECTED", l.row(1).Status)
			require.Empty(t, l.row(2).HeldBy, "what it held goes on")
			require.Equal(t, "DEAD", l.row(7).Status, "another's row is left alone")
		})
	}
}

// TestALetterLeavesTheRowOfAnotherAlone: of the same event at another place, and of what stood there before the topic was
// made anew.
func TestALetterLeavesTheRowOfAnotherAlone(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusDead)
	copied, garbage := delivery(1), delivery(1)
	copied.Record.Offset = 500
	garbage.Event, garbage.Record.Value, garbage.Record.Headers = event.Event{}, []byte("garbage"), nil
	for _, d := range []inbox.Delivery{copied, garbage} {
		require.NoError(t, l.tx(func(tx *gorm.DB) error {
			return inbox.Park(t.Context(), tx, d, inbox.Trouble{Class: inbox.ClassUndecodable, Text: "an older build could not read it"})
		}))
	}
	var its []int64
	require.NoError(t, l.db.Raw("SELECT letter_id FROM t_dead_letter ORDER BY error_class = 'undecodable' DESC, letter_id").Scan(&its).Error)
	require.Len(t, its, 3)
	for i, id := range its {
		require.Equal(t, "DEAD", l.row(1).Status, i)
		require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Discard(t.Context(), tx, "g", id, why) }))
	}
	require.Equal(t, "REJECTED", l.row(1).Status, "its own letter ends it")
}

// TestEveryLetterThatCanBeReadIsReleasable: what is empty and what is not there must not be mistaken for each other.
func TestEveryLetterThatCanBeReadIsReleasable(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for i, value := range [][]byte{nil, {}, {0, 0xff}} {
		d := delivery(int64(i + 1))
		d.Record.Headers = append(d.Event.Headers(), event.Header{Key: "x\xff", Value: value}, event.Header{Key: "", Value: value})
		require.NoError(t, l.tx(func(tx *gorm.DB) error {
			return inbox.Park(t.Context(), tx, d, inbox.Trouble{Class: inbox.ClassUndecodable, Text: "an older build could not read it"})
		}))
	}
	letters, err := inbox.Letters(t.Context(), l.db, "g", 0, inbox.Filter{Limit: 100})
	require.NoError(t, err)
	require.Len(t, letters, 3)
	for _, letter := range letters {
		require.NoError(t, l.tx(func(tx *gorm.DB) error { return inbox.Release(t.Context(), tx, "g", letter.LetterID, why) }), letter.Offset)
	}
}
