package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"gorm.io/gorm"

	"example.com/paycast/shared/archive"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/lease"
)

// Settings come from the environment. Embed them in a service's configuration.
type Settings struct {
	Brokers string        `env:"KAFKA_BROKERS,required,notEmpty"`
	Session time.Duration `env:"KAFKA_SESSION_TIMEOUT" envDefault:"10s"` // how long a dead member keeps its partitions

	HandlerTimeout time.Duration `env:"CONSUMER_HANDLER_TIMEOUT" envDefault:"10s"` // a handler that takes longer has failed
	Lease          time.Duration `env:"CONSUMER_LEASE" envDefault:"30s"`           // of a message claimed from the retry lane
	Attempts       int           `env:"CONSUMER_ATTEMPTS" envDefault:"10"`         // then it is a dead letter
	Backoff        time.Duration `env:"CONSUMER_BACKOFF" envDefault:"1s"`          // before the second attempt, doubling
	MaxBackoff     time.Duration `env:"CONSUMER_MAX_BACKOFF" envDefault:"5m"`      //
	MaxWait        time.Duration `env:"CONSUMER_MAX_WAIT" envDefault:"24h"`        // of a message that waits for another one
	Workers        int           `env:"CONSUMER_WORKERS" envDefault:"4"`           // of the retry lane
	RetryPoll      time.Duration `env:"CONSUMER_RETRY_POLL" envDefault:"1s"`       // how often the idle lane looks for due messages
	FailuresInARow int           `env:"CONSUMER_FAILURES_IN_A_ROW" envDefault:"10"`
	Stuck          time.Duration `env:"CONSUMER_STUCK" envDefault:"30s"` // lag without progress for so long is not ready

	LetterOwner     string        `env:"DEAD_LETTER_OWNER"`                        // who answers for dead letters; default: the group's name
	LetterRetention time.Duration `env:"DEAD_LETTER_RETENTION" envDefault:"2160h"` // of closed ones; open ones stay

	ReplayRetention time.Duration `env:"REPLAY_RETENTION" envDefault:"2160h"` // of ended replays and of plans that nobody ran. 0: they stay

	// Finished rows of the consume log that are older than this go to its archive. 0: they stay where they are.
	ArchiveAfter  time.Duration `env:"CONSUME_LOG_ARCHIVE_AFTER"`
	ReplayHorizon time.Duration `env:"REPLAY_HORIZON" envDefault:"168h"` // how far back a replay may reach

	// How often old finished rows and old closed letters are looked for, from the start on. 0 means every hour.
	SweepEvery time.Duration `env:"CONSUMER_SWEEP_EVERY" envDefault:"1h"`

	// Where replays and reapply get an event that this group has not kept. Without it they refuse, and say so.
	SourceURL   string `env:"PAYMENT_OPS_URL"`
	SourceToken string `env:"OPS_TOKEN"`
}

// Config is a consumer: who it is, where its log stands, and what reconciliation may ask it.
type Config struct {
	Settings
	Group string   // the consumer group, in Kafka and in the log. A new name handles all of history again.
	DB    *gorm.DB // the service's own database, with inbox.Migrations and audit.Migrations
	// SkipDead names the event types whose dead letter holds nobody: later versions of the order go on without it. It
	// fits where each event carries the whole state. All others hold later versions until an operator decides.
	SkipDead []string
	// ReachesPeople says that an event makes somebody receive something. A replay then asks for a second confirmation.
	ReachesPeople bool
	// Effects fills Effect of each fact of a page that is applied, from where the effect lives. It may be nil.
	Effects func(ctx context.Context, page []facts.Fact) error
	// Faults lists what the service finds wrong in its own data. It may be nil.
	Faults func(ctx context.Context) ([]facts.Fault, error)
}

// recordMargin is how long the recording of an attempt may take after the handler.
const recordMargin = 10 * time.Second

// Validate refuses settings that would break a promise.
func (s Settings) Validate() error {
	var bad []error
	for name, d := range map[string]time.Duration{
		"KAFKA_SESSION_TIMEOUT": s.Session, "CONSUMER_BACKOFF": s.Backoff, "CONSUMER_MAX_WAIT": s.MaxWait,
		"CONSUMER_RETRY_POLL": s.RetryPoll, "CONSUMER_STUCK": s.Stuck, "DEAD_LETTER_RETENTION": s.LetterRetention,
	} {
		if d <= 0 {
			bad = append(bad, fmt.Errorf("%s must be positive", name))
		}
	}
	if s.SweepEvery < 0 {
		bad = append(bad, errors.New("CONSUMER_SWEEP_EVERY must not be negative"))
	}
	if s.ReplayRetention < 0 {
		bad = append(bad, errors.New("REPLAY_RETENTION must not be negative"))
	}
	if s.MaxBackoff < s.Backoff {
		bad = append(bad, errors.New("CONSUMER_MAX_BACKOFF must not be below CONSUMER_BACKOFF"))
	}
	if s.Attempts < 1 || s.Workers < 1 || s.FailuresInARow < 1 {
		bad = append(bad, errors.New("CONSUMER_ATTEMPTS, CONSUMER_WORKERS and CONSUMER_FAILURES_IN_A_ROW must be at least 1"))
	}
	if err := s.rule().Validate(); err != nil {
		bad = append(bad, fmt.Errorf("CONSUMER_LEASE: %w", err))
	}
	if s.ArchiveAfter != 0 {
		if err := s.keep().Validate(); err != nil {
			bad = append(bad, fmt.Errorf("CONSUME_LOG_ARCHIVE_AFTER: %w", err))
		}
	}
	return errors.Join(bad...)
}

func (s Settings) keep() archive.Retention {
	return archive.Retention{Window: s.ArchiveAfter, Kafka: kafka.Retention, Replay: s.ReplayHorizon}
}

// rule keeps a lease longer than everything that is done under it.
func (s Settings) rule() lease.Rule {
	return lease.Rule{Lease: s.Lease, Deadline: s.HandlerTimeout, Margin: min(recordMargin, s.HandlerTimeout)}
}

// backoff is the time until the next attempt after the given number of failed ones: exponential with full jitter, so
// that what failed together does not come back together.
func (s Settings) backoff(failed int) time.Duration {
	ceiling := s.MaxBackoff
	if d := s.Backoff << min(max(failed-1, 0), 20); d > 0 {
		ceiling = min(ceiling, d)
	}
	return s.Backoff/4 + time.Duration(rand.Int64N(int64(ceiling)))
}
