package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"example.com/paycast/shared/postgres"
)

// Erased is what Erase has emptied.
type Erased struct {
	Letters int
	Events  []string // those that were unfinished, and now are discarded
}

// Erase leaves nothing of the messages whose payload names a user: dead letters, open and closed ones, and what is in the
// retry lane. What was not finished is discarded: its row is REJECTED, later versions that it held go on, and a worker
// that has it in hand is fenced, so that it cannot be kept once more. What is left of a letter says that there was one,
// where it stood and who closed it. Unread records of the topic are not here yet; Kafka's retention ends those.
//
// It must be called inside a transaction, or answers ErrNoTransaction; on any other error the caller rolls back.
func Erase(ctx context.Context, tx *gorm.DB, group, userID string, why Decision) (all Erased, err error) {
	if !postgres.InTx(tx) {
		return Erased{}, ErrNoTransaction
	}
	tx = tx.WithContext(ctx)
	// Until nothing is found: a message of the lane may become a letter meanwhile, or the other way round.
	for {
		events, err := eraseLane(tx, group, userID)
		if err != nil {
			return Erased{}, err
		}
		letters, err := eraseLetters(ctx, tx, group, userID, why)
		if err != nil {
			return Erased{}, err
		}
		if len(events) == 0 && letters == 0 {
			return all, nil
		}
		all.Letters, all.Events = all.Letters+letters, append(all.Events, events...)
	}
}

// naming are the arguments of a look for a user: the name as JSON writes it, quotes included, wherever it stands, because
// garbage may name a customer as well.
func naming(group, userID string) map[string]any {
	needle, err := json.Marshal(userID)
	if err != nil {
		panic(err) // a string always encodes
	}
	return map[string]any{"group": group, "needle": string(needle)}
}

// In the order in which batches lock.
const laneNaming = `
SELECT c.event_id, c.aggregate_id, m.payload
FROM t_message_retry m JOIN t_message_consume c USING (consumer_group, event_id)
WHERE consumer_group = @group AND position(convert_to(@needle, 'UTF8') IN m.payload) > 0
ORDER BY c.aggregate_id COLLATE "C", c.aggregate_version`

// Whoever has claimed it finds another token than its own: none.
const discardUnfinished = `
WITH cleared AS (
    DELETE FROM t_message_retry WHERE consumer_group = @group AND event_id = @event_id)
UPDATE t_message_consume
SET status = 'REJECTED', outcome = 'discarded', next_retry_at = NULL, held_by = NULL, owner_token = NULL, lease_until = NULL, updated_at = now()
WHERE consumer_group = @group AND event_id = @event_id AND status IN ('PROCESSING', 'RETRY', 'WAITING')`

// isOf reports whether a payload that holds the user's name is about the user. Where it can be read its field decides: a user
// may be called like a currency, or like somebody's title. Garbage is erased on suspicion.
func isOf(userID string, payload []byte) bool {
	var of struct {
		UserID json.RawMessage `json:"user_id"`
	}
	var user string
	if json.Unmarshal(payload, &of) != nil || json.Unmarshal(of.UserID, &user) != nil {
		return true
	}
	return user == userID
}

func eraseLane(tx *gorm.DB, group, userID string) (erased []string, err error) {
	var rows []struct {
		EventID, AggregateID string
		Payload              []byte
	}
	if err := tx.Raw(laneNaming, naming(group, userID)).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("looking for unfinished messages to erase: %w", err)
	}
	for _, row := range rows {
		if !isOf(userID, row.Payload) {
			continue
		}
		if err := lock(tx, group, row.AggregateID); err != nil {
			return nil, err
		}
		args := map[string]any{"group": group, "event_id": row.EventID, "aggregate": row.AggregateID}
		discarded := tx.Exec(discardUnfinished, args)
		if discarded.Error == nil && discarded.RowsAffected == 1 {
			erased = append(erased, row.EventID)
			discarded = tx.Exec(wakeHeld, args)
		}
		if discarded.Error != nil {
			return nil, fmt.Errorf("erasing an unfinished message: %w", discarded.Error)
		}
	}
	return erased, nil
}

const lettersNaming = `
SELECT letter_id, payload FROM t_dead_letter
WHERE consumer_group = @group AND position(convert_to(@needle, 'UTF8') IN payload) > 0 ORDER BY letter_id`

const emptyLetter = `
UPDATE t_dead_letter SET payload = NULL, erased_at = now(), error_text = 'erased', record_key = NULL, headers = '[]'
WHERE consumer_group = @group AND letter_id = @id`

func eraseLetters(ctx context.Context, tx *gorm.DB, group, userID string, why Decision) (int, error) {
	var found []struct {
		LetterID int64
		Payload  []byte
	}
	if err := tx.Raw(lettersNaming, naming(group, userID)).Scan(&found).Error; err != nil {
		return 0, fmt.Errorf("looking for letters to erase: %w", err)
	}
	erased := 0
	for _, letter := range found {
		id := letter.LetterID
		if !isOf(userID, letter.Payload) {
			continue
		}
		erased++
		if err := Discard(ctx, tx, group, id, why); err != nil && !errors.Is(err, ErrClosed) {
			return 0, err
		}
		if err := tx.Exec(emptyLetter, map[string]any{"group": group, "id": id}).Error; err != nil {
			return 0, fmt.Errorf("erasing a dead letter: %w", err)
		}
	}
	return erased, nil
}
