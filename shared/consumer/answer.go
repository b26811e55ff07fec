package consumer

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/postgres"
)

// A handler returns one of these when it is done without an effect. It must not have written anything.
var (
	Ignored    error = done{inbox.Ignored}    // this group does nothing for such an event
	Superseded error = done{inbox.Superseded} // newer state is there already
)

// done is no failure, but a handler can say it in one way only.
type done struct{ outcome inbox.Outcome }

func (d done) Error() string { return string(d.outcome) }

// Transient asks for another try later. Any error that says nothing about itself is taken as transient.
func Transient(err error) error { return mark(inbox.ClassTransient, err) }

// Waiting says that something else must come first, such as another event of the order. It is tried again later, and
// at once when another event of the same aggregate is done. It is not counted, but the time is limited.
func Waiting(err error) error { return mark(inbox.ClassWaiting, err) }

// BadData says that this message can never be handled as it is. It becomes a dead letter at once.
func BadData(err error) error { return mark(inbox.ClassBadData, err) }

// Refused says that the business does not allow it, finally. It is recorded and not tried again.
func Refused(err error) error { return mark(inbox.ClassRefused, err) }

// Down says that a part which every message needs is out of order. Nothing is counted against the message.
func Down(err error) error { return mark(classDown, err) }

// classDown is the class of what is nobody's fault: a part that is out of order, or others that have not finished yet.
const classDown = "down"

type answer struct {
	class string
	error
}

func (a answer) Unwrap() error { return a.error }

func mark(class string, err error) error {
	if err == nil {
		return nil
	}
	return answer{class, err}
}

// outcome turns what a handler returned into what inbox.Once expects from it.
func outcome(err error) (inbox.Outcome, error) {
	var d done
	switch {
	case err == nil:
		return inbox.Applied, nil
	case errors.As(err, &d):
		return d.outcome, nil
	default:
		return "", err
	}
}

// class is the class of a failed attempt. What a handler says itself goes before what the error looks like.
func class(err error) string {
	var a answer
	var p panicked
	switch {
	case errors.As(err, &a):
		return a.class
	case errors.As(err, &p):
		return inbox.ClassPanic
	case postgres.Down(err), errors.Is(err, inbox.ErrNotBegun):
		return classDown
	default:
		return inbox.ClassTransient
	}
}

// panicked is a handler's panic as an error. The stack goes to the log and not into the database.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// trouble describes err for the consume log and for dead letters, without what must not stand there.
func trouble(err error) inbox.Trouble {
	return inbox.Trouble{Class: class(err), Code: postgres.Code(err), Text: scrub(err)}
}

// Runs of digits may be phone or card numbers. Quoted text may be a value from the payload.
var personal = regexp.MustCompile(`[0-9]{6,}|"[^"]*"|'[^']*'|[^\s@]+@[^\s@]+`)

const maxText = 300

func scrub(err error) string {
	text := err.Error()
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		// A server's message can quote values; the names of what is hurt are enough.
		names := strings.Join(strings.Fields("sqlstate "+pg.Code+" "+pg.TableName+" "+pg.ConstraintName), " ")
		text = strings.ReplaceAll(text, pg.Error(), names)
	}
	var p panicked
	if errors.As(err, &p) {
		text = strings.ReplaceAll(text, p.Error(), fmt.Sprintf("panic with a %T", p.value))
	}
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
	text = personal.ReplaceAllString(text, "…")
	for len(text) > maxText {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
