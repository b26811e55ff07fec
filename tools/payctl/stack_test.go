package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"example.com/paycast/shared/audit"
	"example.com/paycast/shared/consumer"
	"example.com/paycast/shared/consumertest"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	token = "payctl-test-ops-token"
	group = "coupon"
	soon  = 3 * time.Minute // more than a slow machine needs
)

// stack is a small system of services that payctl has never heard of: the mechanisms are the real ones.
type stack struct {
	t      *testing.T
	env    service.Env // as a stack's env file has it
	broker *testkit.Broker
	db     *gorm.DB // of the test, as the owner
	role   string   // URL of a role that may read and write rows

	settings service.Env // of coupon, beside the short ones
	people   bool        // coupon makes people receive something
	outside  bool        // coupon's effect is outside its database
}

func newStack(t *testing.T, sets ...postgres.Set) *stack {
	t.Helper()
	address := testkit.Postgres(t, append(sets, audit.Migrations)...)
	s := &stack{t: t, broker: testkit.Kafka(t, event.Topic, event.RedeliveryTopic(group))}
	s.env = service.Env{"OPS_TOKEN": token, "KAFKA_BROKERS": s.broker.Brokers()}
	var err error
	s.db, err = postgres.Open(t.Context(), address, "test")
	require.NoError(t, err)
	t.Cleanup(func() { postgres.Close(s.db) })

	u, err := url.Parse(address)
	require.NoError(t, err)
	role := "rows_" + strings.TrimPrefix(u.Path, "/") // roles belong to the server and databases have names of their own
	s.exec("create role " + role + " login password 'p'")
	t.Cleanup(func() { s.exec("drop owned by " + role + "; drop role " + role) })
	s.exec("grant select, insert, update, delete on all tables in schema public to " + role)
	s.exec("grant usage on all sequences in schema public to " + role)
	u.User = url.UserPassword(role, "p")
	s.role = u.String()
	return s
}

func (s *stack) exec(sql string, args ...any) {
	s.t.Helper()
	require.NoError(s.t, s.db.Exec(sql, args...).Error)
}

func (s *stack) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.Raw("select count(*) from "+sql, args...).Scan(&n).Error)
	return n
}

func (s *stack) eventually(n int, sql string) {
	s.t.Helper()
	testkit.Eventually(s.t, soon, func() error {
		if got := s.count(sql); got != n {
			return fmt.Errorf("%d of %s, want %d", got, sql, n)
		}
		return nil
	})
}

// start runs a process under the name NAME_OPS_URL and returns when it is ready.
func (s *stack) start(name string, parts func(p *service.Process, db *gorm.DB) error) {
	s.t.Helper()
	addr := testkit.FreeAddr(s.t)
	testkit.Run(s.t, name, func(ctx context.Context) error {
		db, err := postgres.Open(ctx, s.role, name)
		if err != nil {
			return err
		}
		p, err := service.Start(ctx, name, service.Base{OpsAddr: addr, OpsToken: token, LogLevel: "error"})
		if err != nil {
			return err
		}
		p.Close(func() { postgres.Close(db) })
		if err := parts(p, db); err != nil {
			return err
		}
		return p.Wait()
	})
	s.env[strings.ToUpper(name)+"_OPS_URL"] = "http://" + addr
	testkit.Eventually(s.t, soon, func() error {
		if code, _, complain := s.payctl("doctor"); strings.Contains(complain, name+" cannot be asked") || strings.Contains(complain, "ready, "+name) {
			return fmt.Errorf("exit code %d: %s", code, complain)
		}
		return nil
	})
}

// shop is a service with an outbox; relay is its relay.
func (s *stack) shop() {
	s.t.Helper()
	s.start("shop", func(p *service.Process, db *gorm.DB) error {
		outbox.Mount(p.Ops, db, p.Log)
		p.Settings(postgres.Settings(db))
		return nil
	})
}

func (s *stack) relay() {
	s.t.Helper()
	s.start("relay", func(p *service.Process, _ *gorm.DB) error {
		publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: s.broker.Brokers(), ClientID: "relay", Log: p.Log})
		if err != nil {
			return err
		}
		p.Close(func() { _ = publisher.Close() })
		relay, err := outbox.NewRelay(outbox.Config{DatabaseURL: s.role, Publisher: publisher, Metrics: p.Metrics, Log: p.Log, Poll: 100 * time.Millisecond})
		if err != nil {
			return err
		}
		p.Ready("outbox", relay.Ready)
		p.Settings(publisher.Settings)
		p.Settings(relay.Settings)
		p.Go("relay", relay.Run)
		return nil
	})
}

// coupon is a consumer that cannot handle payments until it is mended.
func (s *stack) coupon() (mended *atomic.Bool) {
	s.t.Helper()
	mended = &atomic.Bool{}
	s.start(group, func(p *service.Process, db *gorm.DB) error {
		var cfg consumer.Settings
		short := service.Env{
			"KAFKA_BROKERS": s.broker.Brokers(), "CONSUMER_HANDLER_TIMEOUT": "15s", "CONSUMER_LEASE": "5m", // out of a slow machine's reach
			"CONSUMER_BACKOFF": "20ms", "CONSUMER_RETRY_POLL": "50ms", "CONSUMER_FAILURES_IN_A_ROW": "100",
		}
		maps.Copy(short, s.settings)
		if err := short.Parse(&cfg); err != nil {
			return err
		}
		return consumer.Run(p, consumer.Config{Settings: cfg, Group: group, DB: db, ReachesPeople: s.people}, s.handler(mended))
	})
	return mended
}

func (s *stack) handler(mended *atomic.Bool) consumer.Handler {
	handle := func(context.Context, event.Event) error {
		if !mended.Load() {
			return consumer.BadData(errors.New("this build cannot"))
		}
		return nil
	}
	if s.outside {
		return consumer.Outside(handle)
	}
	return consumer.InTransaction(func(ctx context.Context, _ *gorm.DB, e event.Event) error { return handle(ctx, e) })
}

// append commits an event of a fresh order; a large one is refused by Kafka and becomes DEAD.
func (s *stack) append(order string, large bool) string {
	s.t.Helper()
	e := consumertest.Paid(order, "ann")
	e.AggregateVersion = 1
	require.NoError(s.t, postgres.Transaction(s.t.Context(), s.db, func(tx *gorm.DB) error { return outbox.Append(s.t.Context(), tx, e) }))
	if large {
		s.exec("update t_outbox_event set payload = repeat('x', 1100000) where event_id = ?", e.ID)
	}
	return e.ID
}

// payctl runs the command line as a person would.
func (s *stack) payctl(args ...string) (code int, out, complain string) {
	s.t.Helper()
	var o, c bytes.Buffer
	code = run(s.t.Context(), append([]string{"--timeout=2m"}, args...), maps.Clone(s.env), &o, &c)
	return code, o.String(), c.String()
}

// json runs a command that must end with the code, and reads its JSON.
func (s *stack) json(want int, into any, args ...string) {
	s.t.Helper()
	code, out, complain := s.payctl(append(args, "--json")...)
	require.Equal(s.t, want, code, complain)
	require.NoError(s.t, json.Unmarshal([]byte(out), into), out)
}
