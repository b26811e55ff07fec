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
