-- +goose Up

-- The balance is the sum of the ledger's entries, kept beside them so that reading it costs one row.
CREATE TABLE t_account (
    user_id    varchar(128) PRIMARY KEY,
    balance    bigint       NOT NULL CHECK (balance >= 0),
    updated_at timestamptz  NOT NULL DEFAULT now()
);

-- One entry per effect. Both keys stand behind the consume log: should its row be lost, an effect is still single.
CREATE TABLE t_ledger (
    entry_id   bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id    varchar(128) NOT NULL,
    order_no   varchar(128) NOT NULL,
    kind       varchar(16)  NOT NULL,
    points     bigint       NOT NULL,
    event_id   varchar(64)  NOT NULL CONSTRAINT ledger_event UNIQUE,
    created_at timestamptz  NOT NULL DEFAULT now(),
    CONSTRAINT ledger_order_kind UNIQUE (order_no, kind),
    CONSTRAINT ledger_sign CHECK ((kind = 'CREDIT' AND points >= 0) OR (kind = 'REVERSAL' AND points <= 0))
);
CREATE INDEX ledger_user ON t_ledger (user_id, entry_id);

-- A ledger is written once. What was wrong is put right by another entry.
-- +goose StatementBegin
CREATE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 't_ledger is append-only' USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON t_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only();

-- +goose Down
DROP TABLE t_ledger;
DROP FUNCTION ledger_is_append_only();
DROP TABLE t_account;
