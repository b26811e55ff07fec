package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/shared/embedded"
)

// Stage is a PostgreSQL server and a directory for the rest.
type Stage struct {
	Dir     string
	Version string // of the server
	Buffers string // its shared_buffers

	Profiles string // a folder for CPU profiles of the relays; empty: none

	server    *embedded.Postgres
	admin     *pgx.Conn
	templates map[string]bool
	n         int // of databases and brokers made

	kafka     *process // Apache Kafka, once RealKafka has started it
	kafkaAddr string
}

// Open starts the server. It syncs its log to the disk at each commit that asks for it, as a server in production does, and
// has so many megabytes for its buffers. A quarter of the memory is what PostgreSQL's manual advises.
func Open(ctx context.Context, buffersMB int) (*Stage, error) {
	dir, err := os.MkdirTemp("", "paycast-bench-")
	if err != nil {
		return nil, err
	}
	s := &Stage{Dir: dir, templates: map[string]bool{}}
	s.server, err = embedded.StartPostgres(ctx, embedded.PostgresConfig{Dir: filepath.Join(dir, "postgres"), Durable: true, Settings: map[string]string{
		"shared_buffers":               fmt.Sprintf("%dMB", max(256, buffersMB)),
		"max_wal_size":                 "8GB",   // a checkpoint in the middle of one drain and not of another would be luck
		"checkpoint_timeout":           "30min", // the same
		"checkpoint_completion_target": "0.5",
	}})
	if err != nil {
		return nil, err
	}
	if s.admin, err = pgx.Connect(ctx, s.url("postgres")); err == nil {
		err = s.admin.QueryRow(ctx, "select current_setting('server_version'), current_setting('shared_buffers')").Scan(&s.Version, &s.Buffers)
	}
	return s, err
}

// Close stops the server and removes the directory.
func (s *Stage) Close(ctx context.Context) error {
	_ = s.admin.Close(ctx)
	if s.kafka != nil {
		s.kafka.term()
	}
	if err := s.server.Stop(); err != nil {
		return err
	}
	return os.RemoveAll(s.Dir)
}

func (s *Stage) url(database string) string { return s.server.URL(database, embedded.Superuser, "") }

// database makes a copy of a database with d's backlog, and fills that one when it is not there yet.
func (s *Stage) database(ctx context.Context, d design.Design, rows design.Rows) (name string, err error) {
	template := d.Backlog + "_" + rows.Name()
	if !s.templates[template] {
		if err := s.exec(ctx, "create database "+template); err != nil {
			return "", err
		}
		if err := d.Fill(ctx, s.url(template), rows); err != nil {
			return "", fmt.Errorf("filling a database for %s: %w", d.Name, err)
		}
		s.templates[template] = true
	}
	s.n++
	name = fmt.Sprintf("drain_%d", s.n)
	return name, s.exec(ctx, fmt.Sprintf("create database %s template %s strategy file_copy", name, template))
}

func (s *Stage) drop(ctx context.Context, name string) error {
	return s.exec(ctx, "drop database "+name+" with (force)")
}

func (s *Stage) exec(ctx context.Context, sql string) error {
	if _, err := s.admin.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// Drain is what is to be run.
type Drain struct {
	Design  design.Design
	Rows    design.Rows
	Relays  int
	Delay   time.Duration // of each produce request, at the broker; not on a broker from outside
	Brokers string        // from outside; empty: a broker of the drain's own
}

// Outcome is what came of it. It is about first copies; Records counts all.
type Outcome struct {
	Elapsed    time.Duration
	Records    int
	Distinct   int
	Violations int // versions that do not stand behind the version before in their partition, see readBack
	Keys       int // with at least one violation
	PeakRSS    int // bytes, of the largest relay process; 0 when the system does not tell
	CPU        CPU
}

// CPU is the processor time of a drain, by who used it.
type CPU struct{ Relays, Postgres, Kafka time.Duration }

// limitOfADrain ends a drain that hangs.
const limitOfADrain = 15 * time.Minute

// Run runs one drain.
func (s *Stage) Run(ctx context.Context, d Drain) (out Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, limitOfADrain)
	defer cancel()
	name, err := s.database(ctx, d.Design, d.Rows)
	if err != nil {
		return out, err
	}
	defer func() {
		if dropErr := s.drop(context.WithoutCancel(ctx), name); err == nil {
			err = dropErr
		}
	}()
	b, err := s.broker(ctx, d.Brokers, d.Delay)
	if err != nil {
		return out, err
	}
	defer b.close()
	var relays []*process
	defer func() {
		for _, r := range relays {
			r.kill()
		}
	}()
	for i := range d.Relays {
		args := []string{"relay", d.Design.Name, "-database", s.url(name), "-brokers", b.addr}
		if s.Profiles != "" {
			args = append(args, "-profile", filepath.Join(s.Profiles, fmt.Sprintf("%s_%s_%d.pprof", d.Design.Name, name, i)))
		}
		r, err := s.process(ctx, args...)
		if err != nil {
			return out, err
		}
		relays = append(relays, r)
	}
	// What filling and copying have left in memory is written now and not during the drain.
	if err := s.exec(ctx, "checkpoint"); err != nil {
		return out, err
	}
	before := CPU{Postgres: familyCPU(s.server.Pid()), Kafka: b.cpu()}
	begin := time.Now()
	for _, r := range relays {
		if err := r.tell("go"); err != nil {
			return out, err
		}
	}
	if err := s.await(ctx, d, b, s.url(name), relays); err != nil {
		return out, err
	}
	out.Elapsed = time.Since(begin)
	out.CPU = CPU{Postgres: familyCPU(s.server.Pid()) - before.Postgres, Kafka: b.cpu() - before.Kafka}
	for _, r := range relays {
		out.PeakRSS, out.CPU.Relays = max(out.PeakRSS, peakRSS(r.pid())), out.CPU.Relays+cpu(r.pid())
		if s.Profiles != "" {
			r.term()
		}
	}
	if d.Design.Silent {
		return out, nil
	}
	return out, b.readBack(ctx, &out)
}

// await returns when Kafka has all records and the table says that all are sent.
func (s *Stage) await(ctx context.Context, d Drain, b *broker, url string, relays []*process) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "set enable_seqscan = off"); err != nil { // the question must not cost the drain anything
		return err
	}
	arrived := d.Design.Silent
	for {
		if !arrived {
			n, err := b.count(ctx)
			if err != nil {
				return err
			}
			arrived = n >= d.Rows.N
		}
		if arrived {
			var done bool
			if err := conn.QueryRow(ctx, d.Design.Done).Scan(&done); err != nil {
				return fmt.Errorf("asking whether all is sent: %w", err)
			}
			if done {
				return nil
			}
		}
		for _, r := range relays {
			if r.ended() {
				return fmt.Errorf("a relay of %s has ended; it wrote:\n%s", d.Design.Name, r.words())
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("draining %s: %w; a relay wrote:\n%s", d.Design.Name, ctx.Err(), relays[0].words())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
