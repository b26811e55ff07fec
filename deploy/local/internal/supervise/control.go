package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"example.com/paycast/shared/ops"
)

// socketName is the control socket's name in the stack's directory.
const socketName = "control.sock"

// socketPath is a path to the socket that fits into a socket address, which holds some 100 bytes. A longer one goes
// through an open descriptor of the directory, which the caller closes.
func socketPath(dir string) (path string, done func(), err error) {
	path = filepath.Join(dir, socketName)
	if len(path) < 100 {
		return path, func() {}, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), socketName), func() { _ = f.Close() }, nil
}

// Control serves the set's verbs on a socket in dir until the returned function is called. The caller owns dir alone, so
// a socket that is there was left by a crash.
func (s *Supervisor) Control(dir string) (stop func(), err error) {
	path, done, err := socketPath(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	defer done()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	// Whoever can connect can kill our processes and no more than that, but that is for our own account only.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // returns when it is closed
	return func() {
		_ = server.Close()
		_ = os.Remove(filepath.Join(dir, socketName))
	}, nil
}

func (s *Supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ps", func(w http.ResponseWriter, r *http.Request) {
		ops.WriteJSON(w, http.StatusOK, s.Statuses(r.Context()))
	})
	mux.HandleFunc("POST /processes/{name}/{verb}", func(w http.ResponseWriter, r *http.Request) {
		p, err := s.Find(r.PathValue("name"))
		if err != nil {
			ops.Problem(w, http.StatusNotFound, "not-found", err.Error())
			return
		}
		if err := p.Do(context.WithoutCancel(r.Context()), r.PathValue("verb")); err != nil {
			ops.Problem(w, http.StatusConflict, "refused", err.Error())
			return
		}
		ops.WriteJSON(w, http.StatusOK, p.Status(r.Context()))
	})
	return mux
}

// Verbs are the names that Do and Client.Do know.
var Verbs = []string{"kill", "stop", "pause", "resume", "start"}

// Do does what the verb says and returns when it is done.
func (p *Process) Do(ctx context.Context, verb string) error {
	switch verb {
	case "kill":
		return p.Kill()
	case "stop":
		return p.StopInOrder()
	case "pause":
		return p.Pause()
	case "resume":
		return p.Resume()
	case "start":
		return p.Start(ctx)
	}
	return fmt.Errorf("%q is none of %q", verb, Verbs)
}

// Client speaks to the set that Control serves from Dir.
type Client struct{ Dir string }

// Statuses is what `ps` shows.
func (c Client) Statuses(ctx context.Context) (all []Status, err error) {
	err = c.call(func(o ops.Client) error { return o.GetJSON(ctx, "/ps", nil, &all) })
	return all, err
}

// Do does what the verb says to the named process and returns when it is done.
func (c Client) Do(ctx context.Context, name, verb string) (s Status, err error) {
	err = c.call(func(o ops.Client) error { return o.PostJSON(ctx, "/processes/"+name+"/"+verb, nil, &s) })
	return s, err
}

func (c Client) call(do func(ops.Client) error) error {
	path, done, err := socketPath(c.Dir)
	if err != nil {
		return err
	}
	defer done()
	var d net.Dialer
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	err = do(ops.Client{BaseURL: "http://paycast", HTTP: &http.Client{Transport: transport, Timeout: time.Minute}})
	var refused *ops.StatusError
	var dial *net.OpError
	switch {
	case errors.As(err, &refused):
		return errors.New(refused.Detail)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("nothing runs on %s: start it with paycast-local up, or name its directory with --dir", c.Dir)
	}
	return err
}
