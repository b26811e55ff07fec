-- +goose Up
-- Postgres knows times without end, and JSON has no year of five digits. One such row would make a whole list, or the
-- facts for the reconciler, unreadable, or stop the lane. LEAST and GREATEST pass over what is null.
ALTER TABLE t_message_consume ADD CONSTRAINT consume_times CHECK (
    LEAST(next_retry_at, lease_until, first_received_at, updated_at) >= '0001-01-01 00:00+00'
    AND GREATEST(next_retry_at, lease_until, first_received_at, updated_at) < '9999-12-31 00:00+00');
ALTER TABLE t_message_consume_archive ADD CONSTRAINT consume_archive_times CHECK (
    LEAST(first_received_at, updated_at) >= '0001-01-01 00:00+00' AND GREATEST(first_received_at, updated_at) < '9999-12-31 00:00+00');
ALTER TABLE t_message_retry ADD CONSTRAINT message_retry_times CHECK (
    record_time >= '0001-01-01 00:00+00' AND record_time < '9999-12-31 00:00+00');
ALTER TABLE t_dead_letter ADD CONSTRAINT dead_letter_times CHECK (
    LEAST(record_time, closed_at, first_seen_at, last_seen_at) >= '0001-01-01 00:00+00'
    AND GREATEST(record_time, closed_at, first_seen_at, last_seen_at) < '9999-12-31 00:00+00');

-- +goose Down
ALTER TABLE t_dead_letter DROP CONSTRAINT dead_letter_times;
ALTER TABLE t_message_retry DROP CONSTRAINT message_retry_times;
ALTER TABLE t_message_consume_archive DROP CONSTRAINT consume_archive_times;
ALTER TABLE t_message_consume DROP CONSTRAINT consume_times;
