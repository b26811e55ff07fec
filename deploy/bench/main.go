// Program paycast-bench measures outbox relays beside each other, and consumers.
//
//	paycast-bench relay-bench     the relays; make bench-relay runs it
//	paycast-bench consumer-bench  the consumers; make bench-consumer runs it
//	paycast-bench relay DESIGN    one relay, as a process of its own
//	paycast-bench consumer NAME   one consumer, as a process of its own
//	paycast-bench broker          a broker, as a process of its own
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"example.com/paycast/deploy/bench/internal/design"
	"example.com/paycast/deploy/bench/internal/stage"
	"example.com/paycast/shared/event"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "paycast-bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(args) == 0 {
		return errors.New("say relay-bench, consumer-bench, relay, consumer or broker")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	switch args[0] {
	case "relay-bench":
		var o options
		flags.BoolVar(&o.quick, "quick", false, "the base case and the slow broker only")
		flags.Float64Var(&o.scale, "scale", 1, "multiply all numbers of rows by this")
		flags.StringVar(&o.brokers, "brokers", "", "also measure on the Kafka at this `host:port`")
		flags.BoolVar(&o.real, "real", false, "start Apache Kafka, which needs Java 17 and Maven, and also measure on it")
		flags.StringVar(&o.only, "only", "", "run these `cases` only: base, slow, keys, million, relays, real, idle")
		flags.StringVar(&o.profiles, "profiles", "", "write CPU profiles of the relays to this `folder`, which slows them")
		rounds := flags.Int("rounds", 3, "drains of each line")
		out := flags.String("out", "", "write relay.json and relay.svg to this `folder`")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return bench(ctx, o, *rounds, *out)
	case "consumer-bench":
		quick := flags.Bool("quick", false, "the two ratios only, with fewer rows")
		rounds := flags.Int("rounds", 3, "runs of each line")
		out := flags.String("out", "", "write consumer.json and consumer.svg to this `folder`")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return benchConsumers(ctx, *quick, *rounds, *out)
	case "relay":
		return relay(ctx, flags, args[1:])
	case "consumer":
		return consumeAs(ctx, flags, args[1:])
	case "broker":
		addr := flags.String("addr", "", "127.0.0.1:port")
		dir := flags.String("dir", "", "folder for its data")
		delay := flags.Duration("delay", 0, "of each produce request")
		partitions := flags.Int("partitions", event.Partitions, "of the topic")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return stage.ServeBroker(ctx, *addr, *dir, *partitions, *delay, func() { fmt.Print(stage.Ready) })
	}
	return fmt.Errorf("there is no command %q", args[0])
}

// relay says that it is ready, waits for a line on its standard input, and relays until it is ended.
func relay(ctx context.Context, flags *flag.FlagSet, args []string) (err error) {
	var t design.Target
	flags.StringVar(&t.DatabaseURL, "database", "", "address of the database")
	flags.StringVar(&t.Brokers, "brokers", "", "host:port")
	flags.DurationVar(&t.Poll, "poll", 0, "between two looks at an idle table; 0 is the default")
	profile := flags.String("profile", "", "write a CPU profile to this file, at SIGTERM")
	if len(args) == 0 {
		return errors.New("which design?")
	}
	d, ok := design.ByName(args[0])
	if !ok {
		return fmt.Errorf("there is no design %q", args[0])
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	fmt.Print(stage.Ready)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer func() {
			pprof.StopCPUProfile()
			_ = f.Close()
		}()
	}
	return d.Run(ctx, t)
}

// since is a duration for people.
func since(begin time.Time) time.Duration { return time.Since(begin).Round(time.Second) }
