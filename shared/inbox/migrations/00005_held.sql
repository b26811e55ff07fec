-- +goose Up
-- What is held, for the look at whether it still waits for something. No other row is in it.
CREATE INDEX message_consume_held ON t_message_consume (consumer_group, event_id) WHERE held_by IS NOT NULL;

-- +goose Down
DROP INDEX message_consume_held;
