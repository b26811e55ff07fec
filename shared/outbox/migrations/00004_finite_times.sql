-- +goose Up
-- Postgres knows times without end; the programs that read these rows do not. One such row would make the whole list, and
-- the facts for the reconciler, unreadable.
alter table t_outbox_event add constraint t_outbox_event_times check (
    created_at between '0001-01-01' and '9999-12-31' and next_retry_at between '0001-01-01' and '9999-12-31'
    and lease_until between '0001-01-01' and '9999-12-31' and sent_at between '0001-01-01' and '9999-12-31');

-- +goose Down
alter table t_outbox_event drop constraint t_outbox_event_times;
