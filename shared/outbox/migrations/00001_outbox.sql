-- +goose Up
create table t_outbox_event (
    event_id           varchar(64)  not null primary key,
    aggregate_type     varchar(64)  not null,
    aggregate_id       varchar(128) not null,
    aggregate_version  bigint       not null check (aggregate_version > 0),
    event_type         varchar(128) not null,
    event_version      int          not null check (event_version > 0),
    destination        varchar(128) not null,
    message_key        varchar(128) not null,
    payload            text         not null, -- text, because jsonb would change the bytes
    headers            text         not null, -- one "name: value" per line, as they go onto the wire
    status             varchar(32)  not null default 'PENDING',
    owner_token        varchar(64),
    lease_until        timestamptz,
    retry_count        int          not null default 0, -- unknown answers
    takeover_count     int          not null default 0, -- claims that ended with their relay
    alone              boolean      not null default false, -- to be sent while nothing else is
    held_by            varchar(64), -- the event of the same key that must go first
    skipped            boolean      not null default false, -- DEAD, and later events of its key may pass
    next_retry_at      timestamptz           default now(), -- null when DEAD: not by itself
    last_error_code    varchar(64),
    last_error_message varchar(512),
    broker_partition   int,
    broker_offset      bigint,
    created_at         timestamptz  not null default now(),
    sent_at            timestamptz,
    updated_at         timestamptz  not null default now(),

    constraint t_outbox_event_aggregate unique (aggregate_type, aggregate_id, aggregate_version),
    constraint t_outbox_event_status check (status in ('PENDING', 'SENDING', 'SENT', 'RETRY', 'DEAD')),
    constraint t_outbox_event_claimed check (
        (status = 'SENDING') = (owner_token is not null) and (status = 'SENDING') = (lease_until is not null)),
    constraint t_outbox_event_sent check (
        (status = 'SENT') = (sent_at is not null) and (status = 'SENT') = (broker_partition is not null)
        and (status = 'SENT' or broker_offset is null)),
    constraint t_outbox_event_held check (held_by is null or status in ('PENDING', 'RETRY')),
    constraint t_outbox_event_due check (next_retry_at is not null or status = 'DEAD'),
    constraint t_outbox_event_skipped check (not skipped or status = 'DEAD'),
    constraint t_outbox_event_error check (status not in ('RETRY', 'DEAD') or last_error_code is not null)
) with (
    -- No index knows what a claim changes, so that it writes no index entry if the new version finds room beside the old
    -- one (a HOT update). Less than half a page: a claimed row is longer than a waiting one.
    fillfactor = 45,
    -- Each event leaves two dead versions of its row behind (claimed, sent). The default waits for a fifth of the table
    -- to be dead, which on a table that keeps weeks of SENT rows means never; the claim would read through the remains.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    -- Vacuum without its usual naps: it has to keep pace with the relay, and the work is small each time.
    autovacuum_vacuum_cost_delay = 0
);

-- What may be claimed, and what is. Held and DEAD rows are not in it, so that a long tail behind one row costs the claim
-- nothing.
create index t_outbox_event_due on t_outbox_event (destination, alone, next_retry_at, created_at)
    where sent_at is null and held_by is null and next_retry_at is not null;

-- The queue of each key. Unique: the order within a key is total.
create unique index t_outbox_event_queue on t_outbox_event (destination, message_key, aggregate_version)
    where sent_at is null and not skipped;

-- Whom a row holds up.
create index t_outbox_event_held on t_outbox_event (held_by) where held_by is not null;

-- The claims under way: where to look for rows whose lease has ended. A row comes in the statement that claims, and goes
-- when nothing is claimed under its token any more.
create table t_outbox_claim (
    owner_token varchar(64)   not null primary key,
    lease_until timestamptz   not null,
    event_ids   varchar(64)[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index t_outbox_claim_lease on t_outbox_claim (lease_until);
alter table t_outbox_claim alter column event_ids set storage external; -- it lives for a moment: no compression

-- What is wrong with a topic is kept here and not on its rows. A destination without a row is OPEN.
create table t_outbox_destination (
    destination varchar(128) not null primary key,
    state       varchar(16)  not null check (state in ('OPEN', 'PAUSED')),
    cause       varchar(64),  -- an error code; set while PAUSED
    since       timestamptz  not null default now(),
    probe_at    timestamptz,  -- when one row may be tried again
    probes      int          not null default 0,
    constraint t_outbox_destination_paused check (
        (state = 'PAUSED') = (cause is not null) and (state = 'PAUSED') = (probe_at is not null))
);

-- +goose Down
drop table t_outbox_destination;
drop table t_outbox_claim;
drop table t_outbox_event;
