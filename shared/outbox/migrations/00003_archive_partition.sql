-- +goose Up

-- The archive's partitions come month by month, while the archiver runs under a role that may write rows and make no tables.
-- So it asks their owner for this one table and nothing else.
-- +goose StatementBegin
create function t_outbox_archive_partition(of_month date) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    first date := date_trunc('month', of_month);
begin
    perform pg_advisory_xact_lock(hashtext('t_outbox_archive')); -- for archivers that start in a new month at once
    execute format('create table if not exists %I partition of t_outbox_archive for values from (%L) to (%L)',
        't_outbox_archive_' || to_char(first, 'YYYY_MM'),
        to_char(first, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(first + interval '1 month', 'YYYY-MM-DD') || ' 00:00:00+00');
end $$;
-- +goose StatementEnd

-- +goose Down
drop function t_outbox_archive_partition;
