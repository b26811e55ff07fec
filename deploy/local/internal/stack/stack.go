package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/paycast/deploy/local/internal/supervise"
	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
)

// How long things may take to be ready. A first start of the parts may fetch them.
const (
	partLimit    = 5 * time.Minute
	programLimit = time.Minute
)

// Config says what to bring up and where.
type Config struct {
	Root     string            // of the repository
	Bin      string            // where the binaries are
	Dir      string            // data, logs, secrets, control socket
	Postgres string            // URL of a server to use in place of our own; its user may create roles and databases
	Replicas map[string]int    // by process name; 1 where it says nothing
	Restart  bool              // start a process again that died
	Durable  bool              // commits in our own PostgreSQL survive the machine and not only the process
	Defaults map[string]string // environment of all programs, where the caller's own environment says nothing
	Report   func(Step)        // called when a step of the start is done, or takes long
	Deaths   io.Writer         // is told when a process dies
}

// Step is a line of progress.
type Step struct {
	Name    string        `json:"name"`
	Detail  string        `json:"detail"`
	Took    time.Duration `json:"took_ns"`
	Pending bool          `json:"pending,omitempty"` // not done yet
}

// Stack is a running paycast.
type Stack struct {
	cfg       Config
	services  []service
	secrets   secrets
	ports     ports
	admin     *url.URL // of the server
	databases map[string]database
	vars      map[string]string // what the env file holds

	set      supervise.Supervisor
	parts    []part
	running  []*supervise.Process // parts
	programs []*supervise.Process
	release  []func() // in order of acquisition
}

// Up returns when everything is ready. On an error nothing is left running.
func Up(ctx context.Context, cfg Config) (*Stack, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Dir = dir
	s := &Stack{cfg: cfg, vars: map[string]string{}, databases: map[string]database{}}
	if err = s.plan(); err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Down())
	}
	return s, nil
}

// plan decides on everything before anything runs: which services, which ports, which secrets.
func (s *Stack) plan() (err error) {
	if s.services, err = findServices(s.cfg.Root); err != nil {
		return err
	}
	release, err := own(s.cfg.Dir)
	if err != nil {
		return err
	}
	s.release = append(s.release, release, s.ports.release)
	if s.secrets, err = loadSecrets(s.cfg.Dir); err != nil {
		return err
	}
	s.vars["OPS_TOKEN"], s.vars["WEBHOOK_SECRET"], s.vars["MERCHANT_ID"] = s.secrets.OpsToken, s.secrets.WebhookSecret, s.secrets.MerchantID
	if err := s.planParts(); err != nil {
		return err
	}
	suffix := ""
	if s.cfg.Postgres != "" {
		suffix = "_" + s.secrets.ID // others may have a database called payment there
	}
	for _, svc := range s.services {
		db := database{name: svc.Name + suffix, owner: svc.Name + "_owner" + suffix, role: svc.Name + suffix, admin: s.admin, key: s.secrets.Roles}
		s.databases[svc.Name] = db
		s.vars[variable(svc.Name)+"_DATABASE_URL"] = db.ownerURL()
	}
	return s.planPrograms()
}

func (s *Stack) planParts() error {
	add := func(preferred int, make func(port int) part) (port int, err error) {
		if port, err = s.ports.take(preferred); err == nil {
			p := make(port)
			p.spec.Log = s.logFile(p.spec.Name)
			s.parts = append(s.parts, p)
			s.running = append(s.running, s.set.Add(p.spec))
		}
		return port, err
	}
	if s.cfg.Postgres == "" {
		if _, err := add(postgresPort, s.postgres); err != nil {
			return err
		}
	} else {
		admin, err := url.Parse(s.cfg.Postgres)
		if err != nil || admin.Scheme != "postgres" && admin.Scheme != "postgresql" || admin.Host == "" {
			return errors.New("--postgres is not of the form postgres://user:password@host:port/database")
		}
		s.admin = admin
	}
	port, err := add(kafkaPort, s.kafka)
	if err != nil {
		return err
	}
	s.vars["KAFKA_BROKERS"] = address(port)
	if port, err = add(elasticPort, s.elasticsearch); err != nil {
		return err
	}
	s.vars["ELASTICSEARCH_URL"] = httpURL(port)
	return nil
}

func (s *Stack) planPrograms() error {
	outside, err := s.place(world, "world", 1)
	if err != nil {
		return err
	}
	outside.env["DIR"] = filepath.Join(s.cfg.Dir, "world")
	s.vars["SMS_URL"], s.vars["WORLD_URL"], s.vars["WORLD_OPS_URL"] = httpURL(outside.http), httpURL(outside.http), httpURL(outside.ops)
	programs := []program{outside}
	known := map[string]bool{}
	for _, svc := range s.services {
		for _, p := range svc.Processes {
			known[p.Name] = true
			for replica := 1; replica <= max(1, s.cfg.Replicas[p.Name]); replica++ {
				placed, err := s.place(p, svc.Name, replica)
				if err != nil {
					return err
				}
				placed.env["DATABASE_URL"] = s.databases[svc.Name].roleURL()
				programs = append(programs, placed)
				s.note(placed)
			}
		}
	}
	for name := range s.cfg.Replicas {
		if !known[name] {
			return fmt.Errorf("--replicas names %q, which is no process of a service", name)
		}
	}
	for _, p := range programs {
		if _, err := os.Stat(p.binary); err != nil {
			return fmt.Errorf("the binary %s is missing: run make build", p.binary)
		}
	}
	for _, p := range programs {
		s.programs = append(s.programs, s.set.Add(s.spec(p)))
	}
	return nil
}

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
	err := s.step("databases", "one for each service, with an owner and a role", func() error {
		group, ctx := errgroup.WithContext(ctx)
		for _, db := range s.databases {
			group.Go(func() error { return db.ensure(ctx) })
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
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

// Down stops the programs, then the parts, and gives the directory back. Nothing runs any more when it returns.
func (s *Stack) Down() error {
	err := s.set.Shutdown(s.programs)
	for _, release := range slices.Backward(s.release) {
		release()
	}
	return err
}

// Vars are the addresses and secrets of the stack, by the names of the env file.
func (s *Stack) Vars() map[string]string { return s.vars }

// Do does what a verb of package supervise says to the named process.
func (s *Stack) Do(ctx context.Context, name, verb string) error {
	p, err := s.set.Find(name)
	if err != nil {
		return err
	}
	return p.Do(ctx, verb)
}

// AwaitReady waits until the named process is ready.
func (s *Stack) AwaitReady(ctx context.Context, name string) error {
	p, err := s.set.Find(name)
	if err != nil {
		return err
	}
	return p.AwaitReady(ctx)
}

// WriteEnv makes file appear with all variables, as KEY=value lines.
func (s *Stack) WriteEnv(file string) error {
	var lines []string
	for name, value := range s.vars {
		lines = append(lines, name+"="+value+"\n")
	}
	slices.Sort(lines)
	if err := writeWhole(file, []byte(strings.Join(lines, ""))); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}

func (s *Stack) logFile(name string) string { return filepath.Join(s.cfg.Dir, "log", name+".log") }

// Dir is where the stack lives.
func (s *Stack) Dir() string { return s.cfg.Dir }

// Address is where something answers.
type Address struct{ Name, Main, Ops string }

// Addresses are those of the parts and of all programs.
func (s *Stack) Addresses() []Address {
	var all []Address
	for _, p := range s.parts {
		all = append(all, Address{Name: p.spec.Name, Main: p.label})
	}
	for _, p := range s.programs {
		a := Address{Name: p.Name, Ops: "ops " + httpURL(p.Ports[len(p.Ports)-1])}
		if len(p.Ports) > 1 {
			a.Main = httpURL(p.Ports[0])
		}
		all = append(all, a)
	}
	return all
}

// LastLines is the end of the named process's log.
func (s *Stack) LastLines(name string) string {
	p, err := s.set.Find(name)
	if err != nil {
		return err.Error()
	}
	return p.Tail(8)
}
