package inbox

import (
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
)

// Together is Once for many deliveries of one group in one transaction, at the cost of a few statements for all.
//
// fn gets those that are plain new, in their order, and answers with an outcome for each. fresh tells which those were.
// All others are as they were: repetitions, conflicts, deliveries behind an unfinished version, and second copies
// within ds. They are for Once, after the commit; none of them may have an effect before Once has looked.
//
// None of ds may be claimed from the lane, or be one that MayBeArchived. An error of fn is passed on, and the caller rolls back.
func Together(ctx context.Context, tx *gorm.DB, ds []Delivery, fn func(tx *gorm.DB, fresh []Delivery) ([]Outcome, error)) (fresh []bool, err error) {
	if !postgres.InTx(tx) {
		return nil, ErrNoTransaction
	}
	tx = tx.WithContext(ctx)
	fresh = make([]bool, len(ds))
	if len(ds) == 0 {
		return fresh, nil
	}
	var inserted map[string]bool
	err = turn(ctx, func(ctx context.Context) error {
		tx := tx.WithContext(ctx)
		if err := lockAll(tx, ds); err != nil {
			return err
		}
		inserted, err = insertAll(tx, firstCopies(ds))
		return err
	})
	if err != nil {
		return nil, err
	}
	chosen := make([]Delivery, 0, len(ds))
	for i, d := range ds {
		if inserted[d.Event.ID] {
			delete(inserted, d.Event.ID) // a second copy is not fresh
			fresh[i], chosen = true, append(chosen, d)
		}
	}
	if len(chosen) == 0 {
		return fresh, nil
	}
	outcomes, err := fn(tx, chosen)
	if err != nil {
		return nil, err
	}
	return fresh, correct(tx, chosen, outcomes)
}

// firstCopies keeps a conflict within ds a conflict with what came first: a statement inserts its rows in any order.
func firstCopies(ds []Delivery) []Delivery {
	seen, first := make(map[string]bool, len(ds)), make([]Delivery, 0, len(ds))
	for _, d := range ds {
		if !seen[d.Event.ID] {
			seen[d.Event.ID], first = true, append(first, d)
		}
	}
	return first
}

// Sorted, so that two batches with common aggregates cannot wait for each other. As in Once the locks come before
// everything that is read, and in a statement of their own: a statement looks at the time of its beginning.
const lockAggregates = `SELECT count(pg_advisory_xact_lock(hashtextextended(l, 0))::text) FROM unnest(CAST(@locks AS text[])) l`

func lockAll(tx *gorm.DB, ds []Delivery) error {
	locks := make([]string, len(ds))
	for i, d := range ds {
		locks[i] = d.Group + "/" + d.Event.AggregateID
	}
	slices.Sort(locks)
	if err := tx.Exec(lockAggregates, map[string]any{"locks": array(slices.Compact(locks))}).Error; err != nil {
		return fmt.Errorf("locking the aggregates: %w", err)
	}
	return nil
}

// The rows are inserted finished: should the handler fail, they are rolled back with it. What is behind an unfinished
// version is left out by the same rule as in Once, and what was finished wakes the same rows.
const insertRows = `
WITH new AS (
    INSERT INTO t_message_consume
        (consumer_group, event_id, event_type, aggregate_id, aggregate_version, request_hash,
         status, outcome, topic, partition, "offset")
    SELECT @group, m.event_id, m.event_type, m.aggregate_id, m.aggregate_version, m.request_hash,
        'SUCCESS', 'applied', m.topic, m.partition, m."offset"
    FROM unnest(CAST(@ids AS text[]), CAST(@types AS text[]), CAST(@aggregates AS text[]), CAST(@versions AS bigint[]),
        CAST(@hashes AS text[]), CAST(@topics AS text[]), CAST(@partitions AS int[]), CAST(@offsets AS bigint[]))
        AS m(event_id, event_type, aggregate_id, aggregate_version, request_hash, topic, partition, "offset")
    WHERE NOT EXISTS (
        SELECT FROM t_message_consume e
        WHERE e.consumer_group = @group AND e.aggregate_id = m.aggregate_id AND e.aggregate_version < m.aggregate_version
          AND e.status IN ('PROCESSING', 'RETRY', 'WAITING', 'DEAD') AND NOT e.skipped)
    ON CONFLICT (consumer_group, event_id) DO NOTHING
    RETURNING event_id, aggregate_id),
woken AS (
    UPDATE t_message_consume w SET held_by = NULL, next_retry_at = now(), updated_at = now()
    FROM new
    WHERE w.consumer_group = @group AND w.aggregate_id = new.aggregate_id AND w.status = 'WAITING' AND w.held_by IS NULL)
SELECT event_id FROM new`

func insertAll(tx *gorm.DB, ds []Delivery) (map[string]bool, error) {
	n := len(ds)
	ids, types, aggregates, hashes, topics := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	versions, offsets, partitions := make([]int64, n), make([]int64, n), make([]int32, n)
	for i, d := range ds {
		ids[i], types[i], aggregates[i], hashes[i] = d.Event.ID, d.Event.Type, d.Event.AggregateID, d.Event.Hash()
		topics[i], partitions[i], offsets[i], versions[i] = d.Record.Topic, d.Record.Partition, d.Record.Offset, d.Event.AggregateVersion
	}
	var inserted []string
	err := tx.Raw(insertRows, map[string]any{
		"group": ds[0].Group, "ids": array(ids), "types": array(types), "aggregates": array(aggregates), "versions": array(versions),
		"hashes": array(hashes), "topics": array(topics), "partitions": array(partitions), "offsets": array(offsets),
	}).Scan(&inserted).Error
	if err != nil {
		return nil, fmt.Errorf("inserting consume log rows: %w", err)
	}
	set := make(map[string]bool, len(inserted))
	for _, id := range inserted {
		set[id] = true
	}
	return set, nil
}

const correctRows = `
UPDATE t_message_consume c SET outcome = m.outcome, result_ref = nullif(m.result, '')
FROM unnest(CAST(@ids AS text[]), CAST(@outcomes AS text[]), CAST(@results AS text[])) AS m(event_id, outcome, result)
WHERE c.consumer_group = @group AND c.event_id = m.event_id`

// correct writes what the handler has said where it is not just "applied".
func correct(tx *gorm.DB, ds []Delivery, outcomes []Outcome) error {
	if len(outcomes) != len(ds) {
		return fmt.Errorf("inbox: %d outcomes for %d deliveries", len(outcomes), len(ds))
	}
	var ids, said, results []string
	for i, d := range ds {
		result := ""
		if d.Result != nil {
			result = *d.Result
		}
		if outcomes[i] != Applied || result != "" {
			ids, said, results = append(ids, d.Event.ID), append(said, string(outcomes[i])), append(results, result)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	err := tx.Exec(correctRows, map[string]any{
		"group": ds[0].Group, "ids": array(ids), "outcomes": array(said), "results": array(results),
	}).Error
	if err != nil {
		return fmt.Errorf("recording outcomes: %w", err)
	}
	return nil
}

// array keeps GORM from spreading a slice over as many arguments: it lets a pointer through, and pgx sends one array.
func array[T any](values []T) *[]T { return &values }
