package consumer_test

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/testkit"
)

// gate lets transactions wait, until opened, where the trigger says: "TRIGGER gate BEFORE INSERT ON ...".
func (w *world) gate(trigger string) (open func()) {
	w.t.Helper()
	require.NoError(w.t, w.db.Exec(fmt.Sprintf(`
		CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN coalesce(NEW, OLD); END $$;
		CREATE %s EXECUTE FUNCTION gate()`, trigger)).Error)
	pool, err := w.db.DB()
	require.NoError(w.t, err)
	conn, err := pool.Conn(w.t.Context())
	require.NoError(w.t, err)
	_, err = conn.ExecContext(w.t.Context(), "SELECT pg_advisory_lock(4711)")
	require.NoError(w.t, err)
	opened := false
	open = func() {
		if !opened {
			opened = true
			_, err := conn.ExecContext(context.WithoutCancel(w.t.Context()), "SELECT pg_advisory_unlock(4711)")
			require.NoError(w.t, err)
			require.NoError(w.t, conn.Close())
		}
	}
	w.t.Cleanup(open)
	return open
}

const atTheGate = ` FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 4711
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

func (w *world) atTheGate() int64 {
	w.t.Helper()
	return w.count("SELECT count(*)" + atTheGate)
}

// arrives waits until a transaction stands before the gate.
func (w *world) arrives() {
	w.t.Helper()
	w.eventually("a transaction stands before the gate", func() bool { return w.atTheGate() > 0 })
}

// killed ends a process that stands before the gate, and what the server has left of it: the server notices the death of a
// client only when it next talks to it.
func (w *world) killed(p *testkit.Process) {
	w.t.Helper()
	p.Kill()
	require.NoError(w.t, w.db.Exec("SELECT pg_terminate_backend(pid)"+atTheGate).Error)
	w.eventually("its transaction has ended", func() bool { return w.atTheGate() == 0 })
}
