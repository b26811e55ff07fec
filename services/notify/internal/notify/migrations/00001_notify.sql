-- +goose Up

-- One row is one text message to be sent. There is no phone number here: the sender asks for it each time.
create table t_notification_command (
    command_id          varchar(64)  not null primary key, -- the provider's idempotency key, for ever
    event_id            varchar(64)  not null,
    order_no            varchar(128) not null,
    kind                varchar(16)  not null check (kind in ('PAID', 'CANCELED')),
    text                varchar(512) not null, -- fixed here: a provider refuses a key that comes again with other words
    status              varchar(16)  not null default 'PENDING'
        check (status in ('PENDING', 'SENDING', 'SENT', 'RETRY', 'UNKNOWN', 'FAILED')),
    attempts            int          not null default 0 check (attempts >= 0),
    takeover_count      int          not null default 0 check (takeover_count >= 0),
    owner_token         varchar(64),
    lease_until         timestamptz,
    next_attempt_at     timestamptz  default now(),
    last_error_code     varchar(64),
    provider_message_id varchar(128),
    created_at          timestamptz  not null default now(),
    sent_at             timestamptz,
    updated_at          timestamptz  not null default now(),

    -- What makes one message of one event, even if the consume log has lost its row.
    constraint notification_once unique (event_id, kind),
    constraint notification_owned_while_sending check (
        (status = 'SENDING') = (owner_token is not null) and (status = 'SENDING') = (lease_until is not null)),
    constraint notification_unfinished_is_due check (
        (status in ('PENDING', 'RETRY', 'UNKNOWN')) = (next_attempt_at is not null)),
    constraint notification_sent_says_so check (
        (status = 'SENT') = (provider_message_id is not null) and (status = 'SENT') = (sent_at is not null)),
    constraint notification_trouble_has_a_code check (
        status not in ('RETRY', 'UNKNOWN', 'FAILED') or last_error_code is not null)
);
create index notification_order on t_notification_command (order_no, created_at);
create index notification_due on t_notification_command (next_attempt_at) where status in ('PENDING', 'RETRY', 'UNKNOWN');
create index notification_leased on t_notification_command (lease_until) where status = 'SENDING';
create index notification_not_sent on t_notification_command (status, command_id) where status <> 'SENT';

-- The pace that all senders keep together.
create table t_rate_bucket (
    name        varchar(64)      not null primary key,
    tokens      double precision not null check (tokens >= 0),
    refilled_at timestamptz      not null default now()
);
-- Full at first, whatever SMS_BURST is: a take never finds more than that.
insert into t_rate_bucket (name, tokens) values ('sms', 'infinity');

-- +goose Down
drop table t_rate_bucket;
drop table t_notification_command;
