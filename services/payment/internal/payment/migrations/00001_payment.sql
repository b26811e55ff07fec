-- +goose Up

-- Order numbers sort by bytes, not by the database's language: readers page through them.
create table t_order (
    order_no   text collate "C" primary key,
    user_id    text        not null,
    phone      text        not null, -- stands here and nowhere else: not in events, logs or answers of the API
    title      text        not null,
    amount     bigint      not null, -- minor units
    currency   text        not null,
    status     text        not null,
    version    bigint      not null,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    paid_at    timestamptz,
    constraint t_order_amount check (amount > 0),
    constraint t_order_currency check (currency ~ '^[A-Z]{3}$'),
    constraint t_order_status check (status in ('CREATED', 'PAID', 'CANCELED', 'CLOSED')),
    constraint t_order_version check (version >= 1 and (status = 'CREATED') = (version = 1)),
    constraint t_order_paid_at check (
        case status when 'PAID' then paid_at is not null when 'CANCELED' then true else paid_at is null end)
);

-- One payment per order and one order per trade, whatever the code above believes.
create table t_payment (
    trade_no   text        not null,
    order_no   text collate "C" not null references t_order,
    amount     bigint      not null check (amount > 0),
    currency   text        not null,
    paid_at    timestamptz not null, -- the provider's word
    created_at timestamptz not null default clock_timestamp(),
    constraint t_payment_trade_no primary key (trade_no),
    constraint t_payment_order_no unique (order_no)
);

-- What was answered to a webhook id, byte for byte, and what it led to.
create table t_callback_receipt (
    webhook_id  text        primary key,
    body_hash   text        not null, -- SHA-256 of the raw body, hex
    event_type  text        not null, -- as the provider calls it
    order_no    text        not null, -- '' when the type is not known to us
    verdict     text        not null,
    answer      text        not null,
    received_at timestamptz not null default clock_timestamp(),
    constraint t_callback_receipt_verdict check (
        verdict in ('paid', 'already_paid', 'closed', 'already_closed', 'failed', 'unknown_type', 'incident'))
);

-- What a person has to look at. order_no is the callback's word and may name no order of ours.
create table t_incident (
    id          bigint generated always as identity primary key,
    kind        text        not null,
    order_no    text collate "C" not null,
    trade_no    text        not null,
    expected    text        not null,
    received    text        not null,
    state       text        not null default 'OPEN',
    created_at  timestamptz not null default clock_timestamp(),
    resolved_at timestamptz,
    constraint t_incident_state check (state in ('OPEN', 'RESOLVED')),
    constraint t_incident_resolved check ((state = 'RESOLVED') = (resolved_at is not null)),
    -- The same trouble reported under another webhook id is the same incident.
    constraint t_incident_once unique (order_no, kind, trade_no, received)
);
create index t_incident_by_state on t_incident (state, id);

create table t_idempotency_key (
    key          text primary key,
    request_hash text        not null, -- SHA-256 of the raw body, hex
    -- Deferred, because the key is taken before the order exists.
    order_no     text collate "C" not null references t_order deferrable initially deferred,
    created_at   timestamptz not null default clock_timestamp()
);
