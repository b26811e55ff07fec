package stack

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/paycast/deploy/local/internal/supervise"
	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
)

// How long things may take to be ready on a busy machine. A first start of the parts may fetch them.
const (
	partLimit    = 5 * time.Minute
	programLimit = 5 * time.Minute
)

// start runs what plan has decided on. What does not depend on one another starts at the same time.
func (s *Stack) start(ctx context.Context) error {
	stop, err := s.set.Control(s.cfg.Dir)
	if err != nil {
		return err
	}
	s.release = append(s.release, stop)
	group, groupCtx := errgroup.WithContext(ctx)
	for i, p := range s.running {
		group.Go(func() error {
			if err := s.bring(groupCtx, p, s.parts[i].label, partLimit); err != nil {
				return err
			}
			switch p.Name {
			case "postgres":
				return s.prepareDatabases(groupCtx)
			case "kafka":
				return s.createTopics(groupCtx)
			}
			return nil
		})
	}
	if s.cfg.Postgres != "" {
		group.Go(func() error { return s.prepareDatabases(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	// A service may bring more than its database up to date, so all parts are there by now.
	if err := s.migrateAll(ctx); err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	for _, p := range s.programs {
		group.Go(func() error { return s.bring(groupCtx, p, where(p.Ports), programLimit) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.set.Watch(s.cfg.Deaths, s.cfg.Restart)
}

func where(ports []int) string {
	if len(ports) == 1 {
		return "ops " + address(ports[0])
	}
	return fmt.Sprintf("%s, ops %s", address(ports[0]), address(ports[1]))
}

func (s *Stack) bring(ctx context.Context, p *supervise.Process, detail string, limit time.Duration) error {
	return s.step(p.Name, detail, func() error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err := p.Start(ctx); err != nil {
			return err
		}
		return p.AwaitReady(ctx)
	})
}

func (s *Stack) prepareDatabases(ctx context.Context) error {
	return s.step("databases", "one for each service, with an owner and a role", func() error {
		group, ctx := errgroup.WithContext(ctx)
		for _, db := range s.databases {
			group.Go(func() error { return db.ensure(ctx) })
		}
		return group.Wait()
	})
}

func (s *Stack) migrateAll(ctx context.Context) error {
	return s.step("migrations", "each service's own, by its owner", func() error {
		group, ctx := errgroup.WithContext(ctx)
		for _, svc := range s.services {
			group.Go(func() error { return s.migrate(ctx, svc) })
		}
		return group.Wait()
	})
}

func (s *Stack) migrate(ctx context.Context, svc service) error {
	cmd := s.run(filepath.Join(s.cfg.Bin, svc.Name), "migrate", map[string]string{"DATABASE_URL": s.databases[svc.Name].ownerURL()})
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := embedded.Start(cmd); err != nil {
		return fmt.Errorf("migrating %s: %w", svc.Name, err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("migrating %s: %w\n%s", svc.Name, err, strings.TrimSpace(out.String()))
	}
	return nil
}

func (s *Stack) createTopics(ctx context.Context) error {
	topics := []string{event.Topic}
	for _, svc := range s.services {
		if svc.Group != "" {
			topics = append(topics, event.RedeliveryTopic(svc.Group))
		}
	}
	return s.step("topics", fmt.Sprintf("%d, with %d partitions each", len(topics), event.Partitions), func() error {
		return kafka.EnsureTopics(ctx, s.vars["KAFKA_BROKERS"], topics...)
	})
}

// step reports do when it is done, and now and then while it is not: a first start may fetch things for minutes.
func (s *Stack) step(name, detail string, do func() error) error {
	begin := time.Now()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(15 * time.Second):
				s.cfg.Report(Step{Name: name, Detail: detail, Took: time.Since(begin), Pending: true})
			}
		}
	}()
	err := do()
	close(done)
	if err == nil {
		s.cfg.Report(Step{Name: name, Detail: detail, Took: time.Since(begin)})
	}
	return err
}
