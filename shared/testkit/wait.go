package testkit

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Eventually calls check until it returns nil, and fails the test with its last error when that takes longer than
// within. The error should say what was found instead.
func Eventually(t testing.TB, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %v", within, err)
		case <-tick.C:
		}
	}
}

// Task is something that runs beside the test.
type Task struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Run runs a part of the system beside the test, the way its main function would. Its context ends with Stop, and at the
// latest at the end of the test, which waits for it and fails when it ended with an error of its own.
func Run(t testing.TB, name string, run func(ctx context.Context) error) *Task {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	task := &Task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(task.done)
		task.err = run(ctx)
	}()
	t.Cleanup(func() {
		if err := task.Stop(); err != nil {
			t.Errorf("%s ended with: %v", name, err)
		}
	})
	return task
}

// Stop ends the task's context, waits for its end and returns its error; nil when that is only the context's end.
func (k *Task) Stop() error {
	k.cancel()
	<-k.done
	if errors.Is(k.err, context.Canceled) {
		return nil
	}
	return k.err
}

// Done is closed when the task has ended.
func (k *Task) Done() <-chan struct{} { return k.done }
