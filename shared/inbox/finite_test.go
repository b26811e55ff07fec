package inbox_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/inbox"
)

func TestTimesThatNoProgramReadsAreRefused(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.bring(1, inbox.StatusSuccess)
	l.age(31)
	_, err := inbox.Archive(t.Context(), l.db, "g", month)
	require.NoError(t, err)
	l.bring(2, inbox.StatusSuccess)
	l.bring(3, inbox.StatusDead)
	l.bring(4, inbox.StatusRetry)
	for _, edit := range []string{
		"t_message_consume SET next_retry_at = %s WHERE status = 'RETRY'", "t_message_consume SET first_received_at = %s",
		"t_message_consume SET updated_at = %s", "t_message_retry SET record_time = %s", "t_dead_letter SET record_time = %s",
		"t_message_consume SET status = 'PROCESSING', next_retry_at = NULL, owner_token = 'x', lease_until = %s WHERE status = 'RETRY'",
		"t_dead_letter SET first_seen_at = %s", "t_dead_letter SET last_seen_at = %s",
		"t_dead_letter SET state = 'DISCARDED', closed_by = 'me', closed_reason = 'why', closed_at = %s",
		"t_message_consume_archive SET first_received_at = %s", "t_message_consume_archive SET updated_at = %s",
	} {
		for _, value := range []string{"'infinity'", "'-infinity'", "'0001-01-01 BC'", "'294000-01-01'"} {
			statement := fmt.Sprintf("UPDATE "+edit, value)
			require.ErrorContains(t, l.db.Exec(statement).Error, "_times", statement)
		}
	}
	// What is left is read by everybody.
	log, err := inbox.Log(t.Context(), l.db, "g", inbox.Filter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, log, 3)
	_, err = inbox.Letters(t.Context(), l.db, "g", 0, inbox.Filter{Limit: 10})
	require.NoError(t, err)
	facts, err := inbox.Facts(t.Context(), l.db, "g", "", 10, nil)
	require.NoError(t, err)
	require.Len(t, facts, 4)
}
