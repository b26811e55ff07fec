package stack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/deploy/local/internal/supervise"
	"example.com/paycast/shared/elastic/elastictest"
	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/real"
)

// The parts' preferred ports keep away from the usual ones: a server that is there already is somebody's.
const (
	postgresPort = 15432
	kafkaPort    = 19092
	elasticPort  = 19200
)

// Real, as Config.Kafka or Config.Search, runs the product itself and not what stands in for it.
const Real = "real"

// Parts says which of the parts are real.
func (c Config) Parts() string {
	kafka, search := "kfake for Kafka", "a stand-in for Elasticsearch"
	if c.Kafka == Real {
		kafka = "Apache Kafka " + real.KafkaVersion
	}
	if c.Search == Real {
		search = "Elasticsearch " + real.ElasticsearchVersion
	}
	return "PostgreSQL, " + kafka + ", " + search
}

// part is a server that paycast needs and that somebody else has written.
type part struct {
	spec  supervise.Spec
	label string // which one it is, for people
}

// postgres is a real PostgreSQL whichever way it came to this machine.
func (s *Stack) postgres(port int) (part, error) {
	admin := url.URL{
		Scheme: "postgres", User: url.UserPassword(embedded.Superuser, s.secrets.Superuser), Host: address(port), Path: "/postgres",
		RawQuery: "sslmode=disable",
	}
	s.admin = &admin
	return part{
		label: "PostgreSQL at " + address(port),
		spec: supervise.Spec{
			Name: "postgres", Ports: []int{port},
			Stop: syscall.SIGINT, // breaks off what clients do; SIGTERM would wait for them
			Command: func(ctx context.Context) (*exec.Cmd, error) {
				p, err := embedded.PreparePostgres(ctx, embedded.PostgresConfig{
					Dir: filepath.Join(s.cfg.Dir, "postgres"), Port: port, Password: s.secrets.Superuser, Durable: s.cfg.Durable, Log: io.Discard,
				})
				if err != nil {
					return nil, err
				}
				return p.Cmd, nil
			},
			Ready: func(ctx context.Context) error { return pingPostgres(ctx, admin.String()) },
		},
	}, nil
}

func pingPostgres(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (s *Stack) kafka(port int) (part, error) {
	p := part{
		label: "kfake at " + address(port),
		spec: supervise.Spec{
			Name: "kafka", Ports: []int{port}, Command: s.ourselves("kafka", port),
			Ready: func(ctx context.Context) error { return pingKafka(ctx, address(port)) },
		},
	}
	if s.cfg.Kafka != Real {
		return p, nil
	}
	controller, err := s.ports.take(0)
	p.label = "Apache Kafka " + real.KafkaVersion + " at " + address(port)
	p.spec.Ports = append(p.spec.Ports, controller)
	p.spec.Command = real.Kafka{Dir: filepath.Join(s.cfg.Dir, "kafka-real"), Port: port, Controller: controller}.Command
	return p, err
}

func pingKafka(ctx context.Context, broker string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}

func (s *Stack) elasticsearch(port int) (part, error) {
	p := part{
		label: "stand-in for Elasticsearch at " + address(port),
		spec: supervise.Spec{
			Name: "elasticsearch", Ports: []int{port}, Command: s.ourselves("elasticsearch", port),
			Ready: getOK(httpURL(port) + "/_cluster/health?wait_for_status=yellow&timeout=1s"),
		},
	}
	if s.cfg.Search != Real {
		return p, nil
	}
	transport, err := s.ports.take(0)
	p.label = "Elasticsearch " + real.ElasticsearchVersion + " at " + address(port)
	p.spec.Ports = append(p.spec.Ports, transport)
	p.spec.Command = real.Elasticsearch{Dir: filepath.Join(s.cfg.Dir, "elasticsearch-real"), Port: port, Transport: transport}.Command
	return p, err
}

// ourselves is this very program in the role of a part, as ServePart runs it: a part has a process of its own, so that
// it can be killed.
func (s *Stack) ourselves(name string, port int) func(context.Context) (*exec.Cmd, error) {
	return func(context.Context) (*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return exec.Command(self, "part", name, address(port), filepath.Join(s.cfg.Dir, name)), nil //nolint:noctx // it outlives the start
	}
}

// ServePart is an embedded part: kafka or elasticsearch, at addr, on dir, until ctx ends.
func ServePart(ctx context.Context, name, addr, dir string) error {
	switch name {
	case "kafka":
		return embedded.ServeKafka(ctx, embedded.KafkaConfig{Addr: addr, Dir: dir})
	case "elasticsearch":
		return elastictest.Serve(ctx, addr, dir)
	}
	return fmt.Errorf("%q is not an embedded part", name)
}

var probe = &http.Client{Timeout: 3 * time.Second}

// getOK is nil when url answers 200; otherwise the error holds the beginning of the answer.
func getOK(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := probe.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
		if resp.StatusCode != http.StatusOK && err == nil {
			err = fmt.Errorf("%s: %s", resp.Status, body)
		}
		return err
	}
}
