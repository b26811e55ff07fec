package stage

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/paycast/deploy/bench/internal/consume"
	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/shared/embedded"
)

// Consumption is a backlog in Kafka and one consumer process that works it off.
type Consumption struct {
	Design     string
	Rows       design.Rows
	Partitions int
	Failing    int // one event in so many fails, see consume.Target
	Slow       int
}

// Effects is what came of it.
type Effects struct {
	Elapsed    time.Duration // from the beginning of the first transaction until all effects are there
	Effects    int
	Distinct   int
	Violations int // effects behind a later version of their order
	Lane       int // events that were left to the retry lane
	CPU        CPU
}

// Consume runs one. Joining the group is not measured: it takes seconds and depends on no design.
func (s *Stage) Consume(ctx context.Context, c Consumption) (out Effects, err error) {
	ctx, cancel := context.WithTimeout(ctx, limitOfADrain)
	defer cancel()
	name, err := s.consumerDatabase(ctx)
	if err != nil {
		return out, err
	}
	defer func() {
		if dropErr := s.drop(context.WithoutCancel(ctx), name); err == nil {
			err = dropErr
		}
	}()
	broker, addr, err := s.filledBroker(ctx, c)
	if err != nil {
		return out, err
	}
	defer broker.kill()
	if err := s.exec(ctx, "checkpoint"); err != nil {
		return out, err
	}
	conn, err := pgx.Connect(ctx, s.url(name))
	if err != nil {
		return out, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	p, err := s.process(ctx, "consumer", c.Design, "-database", s.url(name), "-brokers", addr,
		"-failing", strconv.Itoa(c.Failing), "-slow", strconv.Itoa(c.Slow))
	if err != nil {
		return out, err
	}
	defer p.kill()
	before := CPU{Postgres: familyCPU(s.server.Pid()), Kafka: cpu(broker.pid())}
	if err := p.tell("go"); err != nil {
		return out, err
	}
	if err := awaitEffects(ctx, conn, c, p, &out); err != nil {
		return out, err
	}
	out.CPU = CPU{Relays: cpu(p.pid()), Postgres: familyCPU(s.server.Pid()) - before.Postgres, Kafka: cpu(broker.pid()) - before.Kafka}
	return out, conn.QueryRow(ctx, `
		SELECT count(*), count(DISTINCT event_id), count(*) FILTER (WHERE version <= before),
			(SELECT count(*) FROM t_message_consume WHERE status <> 'SUCCESS')
		FROM (SELECT *, lag(version) OVER (PARTITION BY order_no ORDER BY n) AS before FROM t_effect) e`,
	).Scan(&out.Effects, &out.Distinct, &out.Violations, &out.Lane)
}

// awaitEffects looks at the sequence until as many effects have been tried, which costs nothing, and then at the table.
func awaitEffects(ctx context.Context, conn *pgx.Conn, c Consumption, p *process, out *Effects) error {
	want := c.Wanted()
	for tried := 0; ; {
		var done int
		var elapsed time.Duration
		err := conn.QueryRow(ctx, `SELECT last_value FROM t_effect_n_seq`).Scan(&tried)
		if err == nil && tried >= want {
			err = conn.QueryRow(ctx, `SELECT count(*), clock_timestamp() - coalesce(min(begun_at), now()) FROM t_effect`).Scan(&done, &elapsed)
		}
		if err != nil {
			return fmt.Errorf("looking for effects: %w", err)
		}
		if out.Elapsed = elapsed; done >= want {
			return nil
		}
		if p.ended() {
			return fmt.Errorf("the consumer %s has ended; it wrote:\n%s", c.Design, p.words())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %d of %d effects: %w; it wrote:\n%s", c.Design, done, want, ctx.Err(), p.words())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Wanted is how many effects there must be.
func (c Consumption) Wanted() int {
	if c.Failing == 0 {
		return c.Rows.N
	}
	return c.Rows.N - (c.Rows.N+c.Failing/2-1)/c.Failing
}

const consumerTemplate = "consumers"

func (s *Stage) consumerDatabase(ctx context.Context) (name string, err error) {
	if !s.templates[consumerTemplate] {
		if err := s.exec(ctx, "create database "+consumerTemplate); err != nil {
			return "", err
		}
		if err := consume.Prepare(ctx, s.url(consumerTemplate)); err != nil {
			return "", fmt.Errorf("preparing a database: %w", err)
		}
		s.templates[consumerTemplate] = true
	}
	s.n++
	name = fmt.Sprintf("consumed_%d", s.n)
	return name, s.exec(ctx, fmt.Sprintf("create database %s template %s strategy file_copy", name, consumerTemplate))
}

func (s *Stage) filledBroker(ctx context.Context, c Consumption) (*process, string, error) {
	port, err := embedded.FreePort()
	if err != nil {
		return nil, "", err
	}
	s.n++
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := s.process(ctx, "broker", "-addr", addr, "-dir", filepath.Join(s.Dir, fmt.Sprintf("broker_%d", s.n)),
		"-partitions", strconv.Itoa(c.Partitions))
	if err != nil {
		return nil, "", err
	}
	if err := consume.Fill(ctx, addr, c.Rows); err != nil {
		p.kill()
		return nil, "", fmt.Errorf("filling the topic: %w", err)
	}
	return p, addr, nil
}
