-- +goose Up

-- The message that a member has in hand where a partition begins for it. A process that ends in the middle of it leaves
-- the row behind, so the next one knows. One row for each partition, for ever: it is overwritten and not deleted.
CREATE TABLE t_message_in_hand (
    consumer_group varchar(128) NOT NULL,
    topic          varchar(255) NOT NULL,
    partition      int          NOT NULL,
    event_id       varchar(64)  NOT NULL,
    times          int          NOT NULL CHECK (times >= 0), -- it was taken in hand and not put down
    updated_at     timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, topic, partition)
);

-- +goose Down
DROP TABLE t_message_in_hand;
