package consumertest

import "context"

// faultTrigger lets a case decide what happens when the effect of an order is written: it fails, at once, at
// COMMIT or with the log's success, or it waits at the gate, with the transaction open, until the case lets it go on.
const faultTrigger = `
CREATE TABLE consumertest_fault (order_no text PRIMARY KEY, kind text NOT NULL);
CREATE SEQUENCE consumertest_failed; -- counts what a rollback would undo
CREATE FUNCTION consumertest_fault() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE fault text;
BEGIN
    SELECT kind INTO fault FROM consumertest_fault WHERE order_no = NEW.order_no;
    IF fault = TG_ARGV[0] THEN
        PERFORM nextval('consumertest_failed');
        RAISE EXCEPTION 'the test makes this fail' USING ERRCODE = 'P0001';
    ELSIF fault = 'gate' AND TG_ARGV[0] = 'fail' THEN
        PERFORM pg_advisory_xact_lock_shared(4711);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER consumertest_fault BEFORE INSERT OR UPDATE ON %[1]s
    FOR EACH ROW EXECUTE FUNCTION consumertest_fault('fail');
CREATE CONSTRAINT TRIGGER consumertest_fault_at_commit AFTER INSERT OR UPDATE ON %[1]s
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION consumertest_fault('fail at commit');
CREATE FUNCTION consumertest_log_fault() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM consumertest_fault WHERE order_no = NEW.aggregate_id AND kind = 'fail with the log') THEN
        PERFORM nextval('consumertest_failed');
        RAISE EXCEPTION 'the test makes this fail' USING ERRCODE = 'P0001';
    END IF;
    RETURN NEW;
END $$;
CREATE CONSTRAINT TRIGGER consumertest_log_fault AFTER INSERT OR UPDATE ON t_message_consume
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.status = 'SUCCESS') EXECUTE FUNCTION consumertest_log_fault();`

// breaks lets the effect of an order fail, until heals.
func (w *world) breaks(order, kind string) {
	w.Helper()
	w.must(w.db.Exec("INSERT INTO consumertest_fault VALUES (?, ?)", order, kind).Error)
}

func (w *world) heals() {
	w.Helper()
	w.must(w.db.Exec("DELETE FROM consumertest_fault").Error)
}

// hasFailed waits until a fault has happened.
func (w *world) hasFailed() {
	w.Helper()
	w.eventually("an attempt has failed", func() bool { return w.count("SELECT count(*) FROM consumertest_failed WHERE is_called") == 1 })
}

// gate stops transactions that write the order's effect.
type gate struct {
	w    *world
	open func()
}

// shutsGate closes the gate for order-1.
func (w *world) shutsGate() *gate {
	w.Helper()
	pool, err := w.db.DB()
	w.must(err)
	conn, err := pool.Conn(w.Context())
	w.must(err)
	_, err = conn.ExecContext(w.Context(), "SELECT pg_advisory_lock(4711)")
	w.must(err)
	w.breaks("order-1", "gate")
	g := &gate{w: w}
	opened := false
	g.open = func() {
		if !opened {
			opened = true
			_, err := conn.ExecContext(context.WithoutCancel(w.Context()), "SELECT pg_advisory_unlock(4711)")
			w.must(err)
			w.must(conn.Close())
		}
	}
	w.Cleanup(g.open)
	return g
}

// waiting counts the transactions before the gate.
func (g *gate) waiting() int64 {
	g.w.Helper()
	return g.w.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 4711
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// arrives waits until a transaction stands before the gate.
func (g *gate) arrives() {
	g.w.Helper()
	g.w.eventually("a transaction has written the effect and not committed", func() bool { return g.waiting() > 0 })
}

// abandoned ends the sessions that a killed process has left before the gate: the server notices its death only when
// it next talks to it.
func (w *world) abandoned() {
	w.Helper()
	w.must(w.db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()`).Error)
}
