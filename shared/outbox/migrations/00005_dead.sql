-- +goose Up
-- Rows that wait for an operator, for the gauge that asks how many they are. No other row is in it.
create index t_outbox_event_dead on t_outbox_event (created_at) where next_retry_at is null;

-- +goose Down
drop index t_outbox_event_dead;
