-- +goose Up

-- The trace of the event's handling, W3C traceparent, so that the sender's work belongs to it. Null without tracing.
alter table t_notification_command add column trace_parent varchar(64);

-- +goose Down
alter table t_notification_command drop column trace_parent;
