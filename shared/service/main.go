// Package service takes a program from main to a clean shutdown: subcommands, configuration from the environment, the
// listeners, the background loops, and the order in which they end.
//
//	main ─▶ Main ─▶ Command.Run(ctx, env) ─▶ env.Parse(&cfg) ─▶ Start ─▶ p.Serve, p.Go, p.Ready ─▶ p.Wait
//
// A component test calls the same Command.Run with an Env of its own, so that what is tested is what runs.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Command is one subcommand of a program.
type Command struct {
	Name  string
	Help  string
	Flags []string // switches without a value, such as "--json"; the given ones are in Env under their own name
	Run   func(ctx context.Context, env Env) error
}

// Main runs the subcommand that the arguments name and exits: 0 when it returned nil, 1 on its error, 2 when the
// arguments or the configuration are wrong. SIGINT and SIGTERM cancel the context; a second one ends the process at once.
func Main(name string, commands ...Command) {
	commands = append(commands, Command{
		Name: "healthcheck", Help: "ask the process at OPS_ADDR whether it is ready; for container health checks", Run: healthcheck,
	})
	os.Exit(run(name, commands, os.Args[1:], os.Environ(), os.Stderr))
}

func run(name string, commands []Command, args, environ []string, stderr io.Writer) int {
	if len(args) == 0 {
		return usage(name, commands, stderr)
	}
	i := slices.IndexFunc(commands, func(c Command) bool { return c.Name == args[0] })
	if i < 0 {
		return usage(name, commands, stderr)
	}
	env := environment(environ)
	for _, arg := range args[1:] {
		if !slices.Contains(commands[i].Flags, arg) {
			return usage(name, commands, stderr)
		}
		env[arg] = "true"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from now on a second signal has its default effect
	defer stop()
	switch err := commands[i].Run(ctx, env); {
	case err == nil:
		return 0
	case errors.As(err, new(*ConfigError)):
		fmt.Fprintf(stderr, "%s %s: %v\n", name, args[0], err)
		return 2
	default:
		fmt.Fprintf(stderr, "%s %s: %v\n", name, args[0], err)
		return 1
	}
}

func usage(name string, commands []Command, w io.Writer) int {
	fmt.Fprintf(w, "usage: %s COMMAND\n\n", name)
	for _, c := range commands {
		fmt.Fprintf(w, "  %-12s %s %s\n", c.Name, c.Help, strings.Join(c.Flags, " "))
	}
	return 2
}

func healthcheck(ctx context.Context, env Env) error {
	host, port, err := net.SplitHostPort(env["OPS_ADDR"])
	if err != nil {
		return &ConfigError{fmt.Errorf("OPS_ADDR is %q; give the address that the process serves, such as 127.0.0.1:9081", env["OPS_ADDR"])}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // only to show it
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(body)))
	}
	return nil
}
