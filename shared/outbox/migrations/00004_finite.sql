-- +goose Up
-- Postgres knows times without end; the programs that read these rows do not. One such row would make the whole list, and
-- the facts for the reconciler, unreadable.
alter table t_outbox_event add constraint t_outbox_event_times check (
    created_at between '0001-01-01' and '9999-12-31' and next_retry_at between '0001-01-01' and '9999-12-31'
    and lease_until between '0001-01-01' and '9999-12-31' and sent_at between '0001-01-01' and '9999-12-31');

-- One more than the largest number is an error, in the statement that every relay runs for all rows.
alter table t_outbox_event add constraint t_outbox_event_counts check (
    takeover_count between 0 and 1000000000 and retry_count between 0 and 1000000000);

-- +goose Down
alter table t_outbox_event drop constraint t_outbox_event_counts;
alter table t_outbox_event drop constraint t_outbox_event_times;
