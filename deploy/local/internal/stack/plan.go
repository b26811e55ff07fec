package stack

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"example.com/paycast/deploy/local/internal/supervise"
)

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
	add := func(preferred int, plan func(port int) (part, error)) (port int, err error) {
		if port, err = s.ports.take(preferred); err != nil {
			return 0, err
		}
		p, err := plan(port)
		if err != nil {
			return 0, err
		}
		s.parts = append(s.parts, p)
		s.running = append(s.running, s.add(p.spec))
		return port, nil
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
		s.programs = append(s.programs, s.add(s.spec(p)))
	}
	return nil
}

func (s *Stack) add(spec supervise.Spec) *supervise.Process {
	spec.Log = filepath.Join(s.cfg.Dir, "log", spec.Name+".log")
	return s.set.Add(spec)
}
