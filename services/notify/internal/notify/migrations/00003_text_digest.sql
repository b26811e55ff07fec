-- +goose Up

-- Of the text as it was written, so that one that was changed afterwards is found. Null in a row from before.
alter table t_notification_command add column text_digest bytea;

-- +goose Down
alter table t_notification_command drop column text_digest;
