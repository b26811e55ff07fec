-- +goose Up

-- Receipts of callbacks that no provider repeats any more.
create table t_callback_receipt_archive (
    webhook_id  text        primary key,
    body_hash   text        not null,
    event_type  text        not null,
    order_no    text        not null,
    verdict     text        not null,
    answer      text        not null,
    received_at timestamptz not null,
    archived_at timestamptz not null default now()
);
create index t_callback_receipt_age on t_callback_receipt using brin (received_at) with (autosummarize = on);

-- +goose Down
drop index t_callback_receipt_age;
drop table t_callback_receipt_archive;
