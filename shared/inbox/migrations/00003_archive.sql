-- +goose Up
-- Finished rows that no copy from Kafka and no ordinary replay can ask for any more. They still say that an event is
-- done: deliveries on roads that reach back farther look here as well.
CREATE TABLE t_message_consume_archive (
    consumer_group    varchar(128) NOT NULL,
    event_id          varchar(64)  NOT NULL,
    event_type        varchar(128) NOT NULL,
    aggregate_id      varchar(128) NOT NULL,
    aggregate_version bigint       NOT NULL,
    request_hash      varchar(128) NOT NULL,
    status            varchar(32)  NOT NULL CHECK (status IN ('SUCCESS', 'REJECTED')),
    outcome           varchar(32)  NOT NULL,
    result_ref        varchar(128),
    retry_count       int          NOT NULL,
    replay_id         varchar(64),
    topic             varchar(255) NOT NULL,
    partition         int          NOT NULL,
    "offset"          bigint       NOT NULL,
    first_received_at timestamptz  NOT NULL,
    updated_at        timestamptz  NOT NULL,
    archived_at       timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, event_id)
);
-- Which versions of an order have come is asked long after they were archived.
CREATE INDEX message_consume_archive_aggregate ON t_message_consume_archive (consumer_group, aggregate_id, aggregate_version);
-- Old rows lie together, so a few pages of index find them.
CREATE INDEX message_consume_age ON t_message_consume USING brin (first_received_at) WITH (autosummarize = on);

-- +goose Down
DROP INDEX message_consume_age;
DROP TABLE t_message_consume_archive;
