-- +goose Up
-- As 00006 for the rest: one row that cannot be read would make the list of all replays, or of all messages of one,
-- unreadable. What is no JSON is refused by the cast.
ALTER TABLE t_replay_job ADD CONSTRAINT replay_job_times CHECK (
    LEAST(next_at, created_at, started_at, ended_at, updated_at) >= '0001-01-01 00:00+00'
    AND GREATEST(next_at, created_at, started_at, ended_at, updated_at) < '9999-12-31 00:00+00');
ALTER TABLE t_replay_job ADD CONSTRAINT replay_job_selection CHECK (selection::json IS NOT NULL);
ALTER TABLE t_replay_item ADD CONSTRAINT replay_item_times CHECK (
    LEAST(lease_until, begun_at, updated_at) >= '0001-01-01 00:00+00'
    AND GREATEST(lease_until, begun_at, updated_at) < '9999-12-31 00:00+00');

-- +goose Down
ALTER TABLE t_replay_item DROP CONSTRAINT replay_item_times;
ALTER TABLE t_replay_job DROP CONSTRAINT replay_job_selection;
ALTER TABLE t_replay_job DROP CONSTRAINT replay_job_times;
