-- +goose Up
CREATE TABLE t_reconcile_run (
    id         text PRIMARY KEY,
    status     text NOT NULL CHECK (status IN ('running', 'agree', 'differ', 'failed')),
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz,
    checked    text, -- JSON; what was compared
    error      text, -- who could not be asked, and why
    CHECK ((status = 'running') = (ended_at IS NULL)),
    CHECK ((status IN ('agree', 'differ')) = (checked IS NOT NULL)),
    CHECK ((status = 'failed') = (error IS NOT NULL))
);

-- The advisory lock that a running run holds is the rule; this index keeps the table honest should the lock be lost.
CREATE UNIQUE INDEX t_reconcile_run_one_running ON t_reconcile_run (status) WHERE status = 'running';

CREATE TABLE t_reconcile_item (
    run_id   text NOT NULL REFERENCES t_reconcile_run (id) ON DELETE CASCADE,
    item_no  int  NOT NULL CHECK (item_no > 0),
    kind     text NOT NULL CHECK (kind <> ''),
    grp      text NOT NULL, -- empty when the source itself is wrong
    order_no text NOT NULL,
    event_id text NOT NULL,
    detail   text NOT NULL,
    state    text NOT NULL CHECK (state IN ('open')),
    PRIMARY KEY (run_id, item_no)
);
CREATE INDEX t_reconcile_item_order ON t_reconcile_item (order_no);

-- +goose Down
DROP TABLE t_reconcile_item;
DROP TABLE t_reconcile_run;
