-- +goose Up
-- Where sent events go when nobody can ask for them in the ordinary way any more. One partition a month, made by the
-- archiver, so that years can be dropped, moved or kept apart.
create table t_outbox_archive (
    event_id           varchar(64)  not null,
    aggregate_type     varchar(64)  not null,
    aggregate_id       varchar(128) not null,
    aggregate_version  bigint       not null,
    event_type         varchar(128) not null,
    event_version      int          not null,
    destination        varchar(128) not null,
    message_key        varchar(128) not null,
    payload            text         not null,
    headers            text         not null,
    broker_partition   int          not null,
    broker_offset      bigint,
    created_at         timestamptz  not null,
    sent_at            timestamptz  not null,
    archived_at        timestamptz  not null default now(),
    primary key (event_id, created_at)
) partition by range (created_at);
create index t_outbox_archive_aggregate on t_outbox_archive (aggregate_type, aggregate_id);

-- Old rows lie together, so a few pages of index find them; a b-tree would be written at every append.
create index t_outbox_event_age on t_outbox_event using brin (created_at) with (autosummarize = on);

-- +goose Down
drop index t_outbox_event_age;
drop table t_outbox_archive;
