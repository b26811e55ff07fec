-- +goose Up

-- The consume log: what a consumer group knows of each event. The primary key is what makes an effect happen once.
CREATE TABLE t_message_consume (
    consumer_group    varchar(128) NOT NULL,
    event_id          varchar(64)  NOT NULL,
    event_type        varchar(128) NOT NULL,
    aggregate_id      varchar(128) NOT NULL,
    aggregate_version bigint       NOT NULL CHECK (aggregate_version > 0),
    request_hash      varchar(128) NOT NULL,
    status            varchar(32)  NOT NULL
        CHECK (status IN ('PROCESSING', 'SUCCESS', 'RETRY', 'WAITING', 'REJECTED', 'DEAD')),
    outcome           varchar(32),                  -- of a finished row: applied, superseded, ignored; refused, discarded
    result_ref        varchar(128),                 -- what the handler made, where it says so
    retry_count       int          NOT NULL DEFAULT 0 CHECK (retry_count >= 0), -- attempts that failed or never came back
    next_retry_at     timestamptz,
    held_by           varchar(64),                  -- the event of the same aggregate that must go first
    skipped           boolean      NOT NULL DEFAULT false CHECK (NOT skipped OR status = 'DEAD'), -- a dead row that holds nobody
    owner_token       varchar(64),
    lease_until       timestamptz,
    topic             varchar(255) NOT NULL,        -- where the first delivery stood
    partition         int          NOT NULL,
    "offset"          bigint       NOT NULL,
    first_received_at timestamptz  NOT NULL DEFAULT now(),
    updated_at        timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, event_id),
    CONSTRAINT consume_owner_while_processing CHECK (
        (status = 'PROCESSING') = (owner_token IS NOT NULL) AND (status = 'PROCESSING') = (lease_until IS NOT NULL)),
    CONSTRAINT consume_retry_is_due CHECK ((status = 'RETRY') <= (next_retry_at IS NOT NULL AND held_by IS NULL)),
    CONSTRAINT consume_waiting_is_due_or_held CHECK (
        (status = 'WAITING') <= ((next_retry_at IS NULL) <> (held_by IS NULL))),
    CONSTRAINT consume_only_the_unfinished_are_due CHECK (
        status IN ('RETRY', 'WAITING') OR (next_retry_at IS NULL AND held_by IS NULL)),
    CONSTRAINT consume_finished_has_outcome CHECK ((status IN ('SUCCESS', 'REJECTED')) = (outcome IS NOT NULL))
);

-- An order has a handful of versions. The index also finds what an operator asks for by order.
CREATE INDEX message_consume_aggregate ON t_message_consume (consumer_group, aggregate_id, aggregate_version);
-- What is counted. In good times it is almost empty.
CREATE INDEX message_consume_unfinished ON t_message_consume (consumer_group, status)
    WHERE status IN ('PROCESSING', 'RETRY', 'WAITING', 'DEAD');
-- The retry lane. Held rows are not in it, so a long tail behind one bad head costs a claim nothing.
CREATE INDEX message_consume_due ON t_message_consume (consumer_group, next_retry_at)
    WHERE status IN ('RETRY', 'WAITING') AND next_retry_at IS NOT NULL;
CREATE INDEX message_consume_leased ON t_message_consume (consumer_group, lease_until) WHERE status = 'PROCESSING';

-- The message of an unfinished row, as it was received. It goes when the row is finished.
CREATE TABLE t_message_retry (
    consumer_group varchar(128) NOT NULL,
    event_id       varchar(64)  NOT NULL,
    record_time    timestamptz  NOT NULL,
    record_key     bytea,
    headers        bytea        NOT NULL,
    payload        bytea        NOT NULL,
    error_class    varchar(32),
    error_code     varchar(64),
    error_text     varchar(512),
    created_at     timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, event_id),
    FOREIGN KEY (consumer_group, event_id) REFERENCES t_message_consume ON DELETE CASCADE
);

-- Messages that only a person can bring further, byte for byte.
CREATE TABLE t_dead_letter (
    letter_id      bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer_group varchar(128) NOT NULL,
    topic          varchar(255) NOT NULL,
    partition      int          NOT NULL,
    "offset"       bigint       NOT NULL,
    payload_hash   varchar(128) NOT NULL,           -- over key, headers and payload as received
    event_id       varchar(64),                     -- null when it cannot be read
    event_type     varchar(128),
    aggregate_id   varchar(128),
    record_time    timestamptz  NOT NULL,
    record_key     bytea,
    headers        bytea        NOT NULL,
    payload        bytea,                           -- null is a tombstone
    error_class    varchar(32)  NOT NULL,
    error_code     varchar(64),
    error_text     varchar(512) NOT NULL,
    attempts       int          NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    first_hash     varchar(128),                    -- of a conflict: the body that came first, and where it stands
    first_topic    varchar(255),
    first_partition int,
    first_offset   bigint,
    owner          varchar(128) NOT NULL,           -- who answers for it
    state          varchar(32)  NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'RELEASED', 'DISCARDED')),
    closed_by      varchar(128),
    closed_reason  varchar(512),
    closed_at      timestamptz,
    erased_at      timestamptz,                     -- when its contents were erased
    first_seen_at  timestamptz  NOT NULL DEFAULT now(),
    last_seen_at   timestamptz  NOT NULL DEFAULT now(),
    -- A topic that is made anew starts at offset 0 again, so the place alone does not name a message.
    CONSTRAINT dead_letter_once UNIQUE (consumer_group, topic, partition, "offset", payload_hash),
    CONSTRAINT dead_letter_conflict_names_the_first CHECK (
        (error_class = 'conflict') = (first_hash IS NOT NULL) AND (error_class = 'conflict') = (first_topic IS NOT NULL)
        AND (error_class = 'conflict') = (first_partition IS NOT NULL) AND (error_class = 'conflict') = (first_offset IS NOT NULL)),
    CONSTRAINT dead_letter_closed_by_someone CHECK (
        (state = 'OPEN') = (closed_by IS NULL) AND (state = 'OPEN') = (closed_reason IS NULL) AND (state = 'OPEN') = (closed_at IS NULL))
);
CREATE INDEX dead_letter_open ON t_dead_letter (consumer_group, letter_id) WHERE state = 'OPEN';
CREATE INDEX dead_letter_event ON t_dead_letter (consumer_group, event_id) WHERE event_id IS NOT NULL;

-- +goose Down
DROP TABLE t_dead_letter;
DROP TABLE t_message_retry;
DROP TABLE t_message_consume;
