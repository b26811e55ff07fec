// Command payctl is the operator's command line: a client of every service's operations API and of nothing else. It has
// no database access, so whatever it changes is changed by the service that owns it, by that service's rules and with a
// row in that service's audit.
//
//	list.go    rows of all services in one table      show.go    one thing and what was done to it
//	change.go  release, skip, resolve: dry runs first  status.go  all processes in one table
//	replay.go  handle once more, slowly                progress.go  how far that has come
//	reapply.go an effect that was lost                 erase.go   what names a customer
//	doctor.go  do the settings of all parts fit        print.go   tables and JSON
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/settings"
	"example.com/paycast/tools/payctl/internal/fleet"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailed  = 1 // somebody could not be asked, or said no
	exitUsage   = 2
	exitNothing = 3 // nothing matched, or doctor found something
)

type commands struct {
	Env     string        `help:"Read addresses and token from this file; default: the environment, or .run/env." type:"path" placeholder:"FILE"`
	JSON    bool          `help:"Print JSON."`
	Timeout time.Duration `help:"Of each question to a process." default:"10s"`

	Status       statusCommand `cmd:"" help:"All processes in one table: ready, pending, dead, lag, letters, drift."`
	Doctor       doctorCommand `cmd:"" help:"Check that the settings of all parts fit together; shows each rule with its arithmetic."`
	Destinations struct {
		List destinationsCommand `cmd:"" default:"1" help:"Topics that have refused events, and what is wrong with them."`
		Show destinationsShow    `cmd:"" help:"One topic and what was done to it."`
		Open destinationsOpen    `cmd:"" help:"End the pause of topics now, without waiting for the next probe."`
	} `cmd:"" help:"Topics that the outbox sends to."`
	Outbox struct {
		List    outboxList    `cmd:"" help:"Events that are not sent, oldest first; or all of one order."`
		Show    outboxShow    `cmd:"" help:"One event and what was done to it."`
		Release outboxRelease `cmd:"" help:"Send DEAD or RETRY events now: the fault is repaired, or the skip was a mistake."`
		Skip    outboxSkip    `cmd:"" help:"Let the later events of a DEAD event's order pass it."`
	} `cmd:"" help:"The outbox."`
	Letters struct {
		List    lettersList    `cmd:"" help:"Messages that only a person can bring further."`
		Show    lettersShow    `cmd:"" help:"One letter and what was done to it; its contents only with --contents and a reason."`
		Release lettersRelease `cmd:"" help:"Handle letters once more: the cause is repaired."`
		Discard lettersDiscard `cmd:"" help:"Close letters for good; their events will not be applied."`
		Skip    lettersSkip    `cmd:"" help:"Let later versions of the order pass; the letters stay open."`
		Erase   lettersErase   `cmd:"" help:"Empty what names a customer, in every service."`
	} `cmd:"" help:"Dead letters."`
	Log struct {
		List logList `cmd:"" help:"What the consumer groups know of each event."`
	} `cmd:"" help:"The consume logs."`
	Incidents struct {
		List    incidentsList    `cmd:"" help:"What was said or done about orders that a person must settle."`
		Show    incidentsShow    `cmd:"" help:"One incident and what was done to it."`
		Resolve incidentsResolve `cmd:"" help:"Record that incidents are settled; the orders stay as they are."`
	} `cmd:"" help:"Incidents."`
	Commands struct {
		List commandsList `cmd:"" help:"Messages to people: which are sent, which wait, which failed."`
	} `cmd:"" help:"Notification commands."`
	Replay struct {
		Plan     replayPlan     `cmd:"" help:"Freeze a choice of messages and tell what each would do."`
		Rehearse replayRehearse `cmd:"" help:"Let the service handle them and roll back."`
		Run      replayRun      `cmd:"" help:"Handle one, then ten, then the rest at the rate; it stops itself."`
		Pause    replayPause    `cmd:"" help:"Stop for a while."`
		Resume   replayResume   `cmd:"" help:"Go on, with one message first."`
		Cancel   replayCancel   `cmd:"" help:"End it; what has not begun stays as it is."`
		Status   replayStatus   `cmd:"" help:"All replays, or one with its audit."`
	} `cmd:"" help:"Handle messages once more, in one consumer."`
	Reapply reapplyCommand `cmd:"" help:"Apply an event whose effect was lost although the log says that it was applied."`
}

// app is what a command works with.
type app struct {
	context.Context
	fleet fleet.Fleet
	json  bool
	out   io.Writer
}

// nothing is the end of a command that matched nothing, or of a doctor that found something.
type nothing string

func (n nothing) Error() string { return string(n) }

// usage is an error of the one who typed.
type usage struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], service.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func (c *commands) parse(args []string, options ...kong.Option) (*kong.Context, error) {
	k, err := kong.New(c, append(options, kong.Name("payctl"),
		kong.Description("Look at a running paycast and mend it, through each service's operations API."),
		kong.Vars{"horizon": kafka.Retention.String(), "tolerance": settings.Tolerance.String()}, kong.ConfigureHelp(kong.HelpOptions{Compact: true}))...)
	if err != nil {
		panic(err) // the grammar above is wrong
	}
	return k.Parse(args)
}

func run(ctx context.Context, args []string, env service.Env, out, complain io.Writer) int {
	var c commands
	helped := false
	parsed, err := c.parse(args, kong.Writers(out, complain), kong.Exit(func(int) { helped = true }))
	if helped {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(complain, "payctl: %v; see payctl --help\n", err)
		return exitUsage
	}
	a := &app{Context: ctx, json: c.JSON, out: out}
	if a.fleet, err = fleet.Find(env, c.Env, c.Timeout); err != nil {
		fmt.Fprintf(complain, "payctl: %v\n", err)
		return exitUsage
	}
	err = parsed.Run(a)
	if err != nil {
		fmt.Fprintln(complain, complaint(err))
	}
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, new(usage)):
		return exitUsage
	case errors.As(err, new(nothing)):
		return exitNothing
	}
	return exitFailed
}

// complaint says in each line whose it is; a line that begins with a blank goes on with the one before.
func complaint(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") {
			lines[i] = "payctl: " + line
		}
	}
	return strings.Join(lines, "\n")
}
