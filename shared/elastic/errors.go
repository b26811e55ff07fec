package elastic

import (
	"errors"
	"fmt"
)

// The classes of failure. Every error of this package that says why wraps one of them or is an *Error.
var (
	// ErrDown: no usable answer (connection, time-out, 429, 502-504), or the server takes no writes (blocked, refused
	// credentials). A write may have been applied all the same; sending it again is safe.
	ErrDown = errors.New("elasticsearch is not available")
	// ErrNoIndex: the alias leads to no index. Somebody must create or rebuild it; writing must not.
	ErrNoIndex = errors.New("the index does not exist")
	// ErrMapping: the index is not the one that this build was made for.
	ErrMapping = errors.New("the index is not as defined")
	// ErrDocument: the index is as it should be and refuses this document. It will always refuse it.
	ErrDocument = errors.New("the document is refused")
)

// Down is true when the fault lies with the server or the index, so that every other write would fail too: wait, and
// count nothing against the message at hand.
func Down(err error) bool {
	return errors.Is(err, ErrDown) || errors.Is(err, ErrNoIndex) || errors.Is(err, ErrMapping)
}

// Error is an answer that says no. The reason that the server gives is dropped on purpose: it quotes the document.
type Error struct {
	Status int    // HTTP status, of the answer or of one item in it
	Type   string // Elasticsearch's name for the error; may be empty
}

func (e *Error) Error() string {
	return fmt.Sprintf("elasticsearch answered %d (%s)", e.Status, e.Type)
}

const versionConflict = "version_conflict_engine_exception"

// classify gives a refusal its class. What stays a bare *Error is for the caller to read, or simply unexpected.
func (e *Error) classify() error {
	switch {
	case e.Type == "index_not_found_exception":
		return fmt.Errorf("%w: %w", ErrNoIndex, e)
	case e.Status == 401, e.Status == 403, e.Status == 408, e.Status == 429, e.Status >= 502:
		return fmt.Errorf("%w: %w", ErrDown, e)
	}
	return e
}

// worthRepeating is true for what a second attempt within the same call may mend. 500 is, although it is not Down: it
// can be a fault of this one document.
func (e *Error) worthRepeating() bool { return e.Status == 429 || e.Status >= 500 }

func hasType(err error, name string) bool {
	var e *Error
	return errors.As(err, &e) && e.Type == name
}

func hasStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}
