package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"example.com/paycast/deploy/local/internal/supervise"
)

// The world outside is no service of ours: it has no database and no service.json.
var world = process{Name: "world", Command: "serve", HTTP: 8087, Ops: 9087}

// program is one process of ours: a replica of what a service.json names, or the world.
type program struct {
	name    string // points, points-2, ...
	binary  string
	command string
	http    int // 0 without an API
	ops     int
	env     map[string]string // beside what all programs get
}

// place gives a process its name and ports. Only the first replica has the preferred ones.
func (s *Stack) place(p process, binary string, replica int) (program, error) {
	made := program{name: p.Name, binary: filepath.Join(s.cfg.Bin, binary), command: p.Command, env: map[string]string{}}
	if replica > 1 {
		made.name = fmt.Sprintf("%s-%d", p.Name, replica)
		p.Ops = 0
	}
	var err error
	if made.ops, err = s.ports.take(p.Ops); err != nil {
		return made, err
	}
	made.env["OPS_ADDR"] = address(made.ops)
	if p.HTTP == 0 {
		return made, nil
	}
	if replica > 1 {
		p.HTTP = 0
	}
	if made.http, err = s.ports.take(p.HTTP); err != nil {
		return made, err
	}
	made.env["HTTP_ADDR"] = address(made.http)
	return made, nil
}

// note writes the program's addresses into the stack's variables.
func (s *Stack) note(p program) {
	if p.http != 0 {
		s.vars[variable(p.name)+"_URL"] = httpURL(p.http)
	}
	s.vars[variable(p.name)+"_OPS_URL"] = httpURL(p.ops)
}

// spec is how the program runs. It is made when all addresses are known, for every program gets all of them.
func (s *Stack) spec(p program) supervise.Spec {
	var ports []int
	if p.http != 0 {
		ports = append(ports, p.http)
	}
	return supervise.Spec{
		Name: p.name, Ports: append(ports, p.ops),
		Command: func(context.Context) (*exec.Cmd, error) { return s.run(p.binary, p.command, p.env), nil },
		Ready:   getOK(httpURL(p.ops) + "/readyz"),
	}
}

// run is a command of one of our binaries, with the environment that all of them get and some more.
func (s *Stack) run(binary, command string, more map[string]string) *exec.Cmd {
	cmd := exec.Command(binary, command) //nolint:noctx // it outlives the start
	vars := map[string]string{
		"WEBHOOK_SECRETS": s.secrets.WebhookSecret,
		"FACTS_URLS":      s.factsURLs(),
	}
	for name, value := range s.vars {
		if !strings.HasSuffix(name, "_DATABASE_URL") { // nobody gets into another's database
			vars[name] = value
		}
	}
	for name, value := range more {
		vars[name] = value
	}
	cmd.Env = environment(os.Environ(), s.cfg.Defaults, vars)
	return cmd
}

// environment is what a program sees: ours before what was there, and the defaults only where nothing was. A NAME_FILE
// for a NAME of ours would contradict it.
func environment(inherited []string, defaults, vars map[string]string) []string {
	var env []string
	given := map[string]bool{}
	for _, pair := range inherited {
		name, _, _ := strings.Cut(pair, "=")
		name = strings.TrimSuffix(name, "_FILE")
		if _, ours := vars[name]; !ours {
			env = append(env, pair)
			given[name] = true
		}
	}
	for name, value := range defaults {
		if !given[name] {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// factsURLs tells the reconciler where each consumer group's facts are.
func (s *Stack) factsURLs() string {
	var urls []string
	for _, svc := range s.services {
		if svc.Group != "" {
			urls = append(urls, svc.Group+"="+s.vars[variable(svc.Processes[0].Name)+"_OPS_URL"])
		}
	}
	slices.Sort(urls)
	return strings.Join(urls, ",")
}
