package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Code is the SQLSTATE of err, or "" when the server did not answer.
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// Severity is how bad a database's error is for a process that tries again: that the database is away is no error of the
// process, and a warning.
func Severity(err error) slog.Level {
	if Down(err) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// Down reports whether err says that the database, and not this piece of work, is the trouble: it cannot be reached,
// is shutting down, is out of resources, refuses our rights or lacks our schema. Nothing may be counted against a
// message for it.
//
// Classes: 08 connection, 25 wrong transaction state (a standby is read-only), 28 authorization, 42 schema or rights,
// 53 resources, 57 operator. A cancelled context is the caller's own doing and not Down.
func Down(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	if code := Code(err); code != "" {
		switch code {
		case "57014": // one statement was cancelled or ran into its time limit
			return false
		case "25006": // read_only_sql_transaction
			return true
		}
		switch code[:2] {
		case "08", "28", "42", "53", "57":
			return true
		}
		return false
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) || errors.Is(err, ErrCommitUnknown) {
		return true
	}
	// The deadline of one call is also a net.Error. It may be the call that is too slow, so it blames nobody.
	if errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// IsUnique reports whether err is a violation of the named unique constraint or index. Another constraint's violation
// is another matter and never "a duplicate".
func IsUnique(err error, constraint string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == constraint
}
