// Command paycast-local runs the whole of paycast on this machine without Docker, and tells its story.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kong"

	"example.com/paycast/deploy/local/internal/stack"
	"example.com/paycast/deploy/local/internal/supervise"
	"example.com/paycast/shared/service"
)

var commands struct {
	Demo   demoCommand `cmd:"" help:"Bring everything up, tell one story, check it, go down. Exit code 0 only if all agrees."`
	Up     upCommand   `cmd:"" help:"Bring everything up and stay in the foreground until Ctrl-C."`
	Ps     psCommand   `cmd:"" help:"Show name, pid, ports and state of every part and process."`
	Kill   verbCommand `cmd:"" help:"End a process with SIGKILL."`
	Stop   verbCommand `cmd:"" help:"Ask a process to end in order."`
	Pause  verbCommand `cmd:"" help:"Hold a process where it is, with SIGSTOP."`
	Resume verbCommand `cmd:"" help:"Let a paused process go on."`
	Start  verbCommand `cmd:"" help:"Start a process again that has ended."`
	Part   partCommand `cmd:"" hidden:"" help:"Be an embedded part."`

	Secrets secretsCommand `cmd:"" hidden:"" help:"Compose: make the secrets."`
	Topics  topicsCommand  `cmd:"" hidden:"" help:"Compose: create the topics."`
	Story   storyCommand   `cmd:"" hidden:"" help:"Compose: tell the story without killing anybody."`
}

// stackFlags say what to bring up.
type stackFlags struct {
	Root     string         `help:"The repository; default: found from here upwards." type:"existingdir"`
	Kafka    string         `help:"kfake, or Apache Kafka itself (needs Java 17; Maven the first time)." enum:"embedded,real" default:"embedded"`
	Search   string         `help:"A stand-in, or Elasticsearch itself (needs Java 17; Maven the first time)." enum:"embedded,real" default:"embedded"`
	Postgres string         `help:"URL of a PostgreSQL server to use in place of our own; the user must be allowed to create roles and databases." placeholder:"URL"`
	Replicas map[string]int `help:"How many of each process, as in points=2,relay=2." mapsep:"," placeholder:"NAME=N"`
	Restart  bool           `help:"Start a process again that dies by itself."`
}

func (f stackFlags) config(dir string) (stack.Config, error) {
	root, err := stack.FindRoot(f.Root)
	if err != nil {
		return stack.Config{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return stack.Config{}, err
	}
	return stack.Config{
		Root: root, Bin: filepath.Dir(self), Dir: dir, Kafka: f.Kafka, Search: f.Search, Postgres: f.Postgres, Replicas: f.Replicas, Restart: f.Restart,
	}, nil
}

// directory is where a stack lives; the commands find a running one by it.
type directory struct {
	Dir string `help:"Where the stack keeps its data, logs and secrets." default:".run" type:"path"`
}

type verbCommand struct {
	directory
	Name string `arg:"" help:"As ps shows it."`
}

// Run asks the stack that runs on the directory.
func (c verbCommand) Run(ctx context.Context, k *kong.Context) error {
	verb := k.Selected().Name
	s, err := supervise.Client{Dir: c.Dir}.Do(ctx, c.Name, verb)
	if err != nil {
		return err
	}
	if s.PID == 0 {
		fmt.Printf("%s is %s\n", s.Name, s.State)
	} else {
		fmt.Printf("%s is %s, pid %d\n", s.Name, s.State, s.PID)
	}
	return nil
}

type partCommand struct {
	Name string `arg:""`
	Addr string `arg:""`
	Path string `arg:""`
}

// Run serves until the signal.
func (c partCommand) Run(ctx context.Context) error {
	return stack.ServePart(ctx, c.Name, c.Addr, c.Path)
}

func main() {
	os.Exit(run())
}

func run() int {
	k := kong.Parse(&commands, kong.Name("paycast-local"), kong.UsageOnError(),
		kong.Description("The whole of paycast on this machine, without Docker."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second Ctrl-C has its default effect: we end at once, and the kernel ends what we have started.
	context.AfterFunc(ctx, stop)
	k.BindTo(ctx, (*context.Context)(nil))
	k.Bind(service.Environ())
	err := k.Run(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "paycast-local: %v\n", err)
	if errors.Is(err, stack.ErrInterrupted) {
		return 130
	}
	return 1
}
