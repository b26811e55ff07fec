package kafka

import (
	"context"
	"errors"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
)

// Logger lets Watermill log through slog. It drops payloads and metadata, which Watermill's forwarder and router put
// into their fields: they would carry personal data into the log.
func Logger(log *slog.Logger) watermill.LoggerAdapter { return logger{log} }

// ErrReported marks an error that its owner logs with the right words. Watermill's report of it is kept at debug level.
var ErrReported = errors.New("reported elsewhere")

type logger struct{ log *slog.Logger }

// secret are the field names under which Watermill logs message contents.
var secret = map[string]bool{"payload": true, "metadata": true, "not_sent_message": true}

func (l logger) Error(msg string, err error, fields watermill.LogFields) {
	level := slog.LevelError
	if errors.Is(err, ErrReported) {
		level = slog.LevelDebug
	}
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, msg, append(attrs(fields), slog.Any("error", err))...)
	}
}

// Watermill's info lines tell each step of its own life, so they are debug lines of ours.
func (l logger) Info(msg string, fields watermill.LogFields)  { l.debug(msg, fields) }
func (l logger) Debug(msg string, fields watermill.LogFields) { l.debug(msg, fields) }

// Trace has a line for each message and each hop.
func (l logger) Trace(string, watermill.LogFields) {}

func (l logger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return logger{l.log.With(attrs(fields)...)}
}

func (l logger) debug(msg string, fields watermill.LogFields) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(msg, attrs(fields)...)
	}
}

func attrs(fields watermill.LogFields) []any {
	out := make([]any, 0, len(fields)+1)
	for k, v := range fields {
		if !secret[k] {
			out = append(out, slog.Any(k, v))
		}
	}
	return out
}
