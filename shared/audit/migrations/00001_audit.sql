-- +goose Up
create table t_audit (
    id         bigint generated always as identity primary key,
    at         timestamptz  not null default now(),
    actor      varchar(128) not null check (actor <> ''),
    verb       varchar(64)  not null check (verb <> ''),
    object     varchar(256) not null check (object <> ''),
    reason     varchar(512) not null check (reason <> ''),
    detail     text         not null default '' -- facts for a person; never contents of events
);
create index t_audit_object on t_audit (object, id);

-- Append-only for everybody who is not the owner of the trigger.
-- +goose StatementBegin
create function t_audit_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 't_audit is append-only';
end $$;
-- +goose StatementEnd
create trigger t_audit_is_append_only before update or delete on t_audit
    for each row execute function t_audit_is_append_only();
create trigger t_audit_keeps_its_rows before truncate on t_audit
    for each statement execute function t_audit_is_append_only();

-- +goose Down
drop table t_audit;
drop function t_audit_is_append_only;
