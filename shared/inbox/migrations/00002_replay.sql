-- +goose Up

-- The job by which an unfinished row was given back to the lane. Such a row has one attempt: whoever replays wants to
-- know at once that a message is still bad, and not after hours of backoff.
ALTER TABLE t_message_consume ADD COLUMN replay_id varchar(64);

-- A replay: a frozen choice of messages, and how far it has come. It stands where the rows are that it moves, so that
-- a step of the job and what the step does are one commit.
CREATE TABLE t_replay_job (
    job_id         varchar(64)  PRIMARY KEY,
    consumer_group varchar(128) NOT NULL,
    state          varchar(16)  NOT NULL DEFAULT 'PLANNED'
        CHECK (state IN ('PLANNED', 'RUNNING', 'PAUSED', 'DONE', 'CANCELED')),
    stage          varchar(8)   CHECK (stage IN ('ONE', 'TEN', 'REST')),
    budget         int          NOT NULL DEFAULT 0 CHECK (budget >= 0),   -- messages that may be begun in this stage
    rate           int          NOT NULL CHECK (rate BETWEEN 1 AND 1000), -- messages a second
    next_at        timestamptz  NOT NULL DEFAULT now(),                   -- when the rate allows the next one
    cause          varchar(512),                                          -- of a pause
    selection      text         NOT NULL,                                 -- JSON, as it was asked for
    items          int          NOT NULL CHECK (items >= 0),
    ids_hash       varchar(64)  NOT NULL,                                 -- over the frozen ids, in their order
    lag_before     bigint       NOT NULL DEFAULT 0,
    planned_by     varchar(128) NOT NULL,
    reason         varchar(512) NOT NULL,
    started_by     varchar(128),
    created_at     timestamptz  NOT NULL DEFAULT now(),
    started_at     timestamptz,
    ended_at       timestamptz,
    updated_at     timestamptz  NOT NULL DEFAULT now(),
    CONSTRAINT replay_paused_for_a_cause CHECK ((state = 'PAUSED') = (cause IS NOT NULL)),
    CONSTRAINT replay_running_was_started CHECK (
        state NOT IN ('RUNNING', 'PAUSED', 'DONE') OR (started_by IS NOT NULL AND started_at IS NOT NULL AND stage IS NOT NULL)),
    CONSTRAINT replay_ended CHECK ((state IN ('DONE', 'CANCELED')) = (ended_at IS NOT NULL))
);
-- Two replays at once would hide from each other which of them does the harm.
CREATE UNIQUE INDEX replay_one_at_a_time ON t_replay_job (consumer_group) WHERE state = 'RUNNING';

CREATE TABLE t_replay_item (
    job_id      varchar(64)  NOT NULL REFERENCES t_replay_job ON DELETE CASCADE,
    position    int          NOT NULL,
    letter_id   bigint,                             -- null: the event comes from the outbox or its archive
    event_id    varchar(64),
    event_type  varchar(128),
    order_no    varchar(128),
    forecast    varchar(32)  NOT NULL,              -- what the plan expected
    state       varchar(16)  NOT NULL CHECK (state IN ('PENDING', 'CLAIMED', 'BEGUN', 'SETTLED')),
    result      varchar(32),
    owner_token varchar(64),
    lease_until timestamptz,
    begun_at    timestamptz,
    updated_at  timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, position),
    CONSTRAINT replay_item_names_something CHECK (letter_id IS NOT NULL OR event_id IS NOT NULL),
    CONSTRAINT replay_item_moves_an_event CHECK (state = 'SETTLED' OR event_id IS NOT NULL),
    CONSTRAINT replay_item_owner_while_claimed CHECK (
        (state = 'CLAIMED') = (owner_token IS NOT NULL) AND (state = 'CLAIMED') = (lease_until IS NOT NULL)),
    CONSTRAINT replay_item_begun CHECK ((state = 'BEGUN') <= (begun_at IS NOT NULL)),
    CONSTRAINT replay_item_settled_has_result CHECK ((state = 'SETTLED') = (result IS NOT NULL))
);
CREATE INDEX replay_item_open ON t_replay_item (job_id, state, position) WHERE state <> 'SETTLED';

-- +goose Down
DROP TABLE t_replay_item;
DROP TABLE t_replay_job;
ALTER TABLE t_message_consume DROP COLUMN replay_id;
