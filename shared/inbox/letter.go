package inbox

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
)

// Park keeps a record that cannot be handled at all: undecodable, a tombstone, of an unknown type or a newer version.
// d.Event holds what could be read of it, if anything. Parking the same record again changes nothing but last_seen_at.
func Park(ctx context.Context, tx *gorm.DB, d Delivery, t Trouble) error {
	if !postgres.InTx(tx) {
		return ErrNoTransaction
	}
	return writeLetter(tx.WithContext(ctx), d, t, nil, false)
}

// A letter that dies a second time, after its release, is open again. A record that merely arrives again is not.
const insertLetter = `
INSERT INTO t_dead_letter
    (consumer_group, topic, partition, "offset", payload_hash, event_id, event_type, aggregate_id,
     record_time, record_key, headers, payload, error_class, error_code, error_text, attempts,
     first_hash, first_topic, first_partition, first_offset, owner)
VALUES
    (@group, @topic, @partition, @offset, @record_hash, nullif(@event_id, ''), nullif(@event_type, ''), nullif(@aggregate, ''),
     @time, @key, @headers, @payload, @class, @code, @text, @attempts,
     @first_hash, @first_topic, @first_partition, @first_offset, @owner)
ON CONFLICT ON CONSTRAINT dead_letter_once DO UPDATE
SET last_seen_at = now(), attempts = least(t_dead_letter.attempts, 1000000000) + least(excluded.attempts, 1000000000)`

const reopenLetter = insertLetter + `,
    state = 'OPEN', closed_by = NULL, closed_reason = NULL, closed_at = NULL,
    error_class = excluded.error_class, error_code = excluded.error_code, error_text = excluded.error_text`

func writeLetter(tx *gorm.DB, d Delivery, t Trouble, f *first, reopen bool) error {
	args := d.place()
	d.message(args)
	t.args(args)
	args["record_hash"], args["attempts"], args["owner"] = recordHash(d.Record), d.Failed, d.Owner
	if d.Claimed {
		// What may have been changed in the lane must not vouch for itself. Put right, it fits the log again.
		if _, err := d.Decode(); err != nil {
			args["record_hash"] = d.hash
		}
	}
	args["first_hash"], args["first_topic"], args["first_partition"], args["first_offset"] = nil, nil, nil, nil
	if f != nil {
		args["first_hash"], args["first_topic"] = f.RequestHash, f.Topic
		args["first_partition"], args["first_offset"] = f.Partition, f.Offset
	}
	statement := insertLetter
	if reopen {
		statement = reopenLetter
	}
	if err := tx.Exec(statement, args).Error; err != nil {
		return fmt.Errorf("writing the dead letter: %w", err)
	}
	return nil
}
