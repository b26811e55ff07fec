package stack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// service is what a service's service.json says.
type service struct {
	Name      string    `json:"name"`            // the folder's and the binary's name
	Group     string    `json:"group,omitempty"` // the consumer group, of those that consume
	Processes []process `json:"processes"`
	Needs     []string  `json:"needs"` // parts beyond postgres and kafka
}

// process is one of the service's programs. The first one of a service answers /ops/facts.
type process struct {
	Name    string `json:"name"`
	Command string `json:"command"`        // the binary's subcommand
	HTTP    int    `json:"http,omitempty"` // the preferred port of its API, 0 without one
	Ops     int    `json:"ops"`
}

// FindRoot returns the repository's root: the first directory from dir upwards that holds go.work and services.
func FindRoot(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := abs; ; at = filepath.Dir(at) {
		_, work := os.Stat(filepath.Join(at, "go.work"))
		_, services := os.Stat(filepath.Join(at, "services"))
		if work == nil && services == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a clone of paycast: run this there, or name the clone with --root", abs)
		}
	}
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,30}$`)

// findServices reads every service.json below root.
func findServices(root string) ([]service, error) {
	files, err := filepath.Glob(filepath.Join(root, "services", "*", "service.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no services/*/service.json in %s", root)
	}
	var all []service
	owner := map[string]string{}
	for _, file := range files {
		s, err := readService(file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, p := range s.Processes {
			if other, taken := owner[p.Name]; taken {
				return nil, fmt.Errorf("reading %s: a process called %s exists already in %s", file, p.Name, other)
			}
			owner[p.Name] = s.Name
		}
		all = append(all, s)
	}
	return all, nil
}

func readService(file string) (service, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return service{}, err
	}
	var s service
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a mistyped name would silently leave something out
	if err := decoder.Decode(&s); err != nil {
		return service{}, err
	}
	// The names become file, database, role and environment names.
	bad := []error{}
	if s.Name != filepath.Base(filepath.Dir(file)) {
		bad = append(bad, fmt.Errorf("the name %q is not that of its folder", s.Name))
	}
	if len(s.Processes) == 0 {
		bad = append(bad, errors.New("it has no processes"))
	}
	for _, p := range s.Processes {
		if !nameForm.MatchString(p.Name) || p.Command == "" || p.Ops == 0 {
			bad = append(bad, fmt.Errorf("process %q needs a name (lower-case letters, digits, _ and -), a command and an ops port", p.Name))
		}
	}
	return s, errors.Join(bad...)
}

// variable is the name's form in the environment: relay-2 becomes RELAY_2.
func variable(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
