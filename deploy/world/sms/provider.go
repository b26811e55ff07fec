package sms

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"example.com/paycast/shared/ops"
)

// maxBody bounds a request, in bytes.
const maxBody = 16 << 10

// Provider is the SMS provider, an http.Handler. Tests mount it on a server of their own.
type Provider struct {
	mux   *http.ServeMux
	store *store

	mu    sync.Mutex
	mode  Mode
	count int // of POST /sms since the mode was set
}

// Open makes a provider in mode ok. With a dir it goes on with what it had accepted there before, even after kill -9;
// with "" it forgets when it ends.
func Open(dir string) (*Provider, error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	p := &Provider{mux: http.NewServeMux(), store: s, mode: Mode{Mode: ModeOK}}
	p.mux.HandleFunc("POST /sms", p.send)
	p.mux.HandleFunc("GET /sms", p.ask)
	p.mux.HandleFunc("GET /messages", func(w http.ResponseWriter, _ *http.Request) {
		ops.WriteJSON(w, http.StatusOK, map[string]any{"messages": p.Messages()})
	})
	p.mux.HandleFunc("GET /mode", func(w http.ResponseWriter, _ *http.Request) { ops.WriteJSON(w, http.StatusOK, p.current()) })
	p.mux.HandleFunc("PUT /mode", p.putMode)
	return p, nil
}

// Close closes the file. Requests that hang end with their connections or their context.
func (p *Provider) Close() error { return p.store.close() }

func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	p.mux.ServeHTTP(w, r)
}

// Messages are all accepted messages, in order of arrival.
func (p *Provider) Messages() []Message { return p.store.all() }

// SetMode changes how POST /sms behaves from the next request on.
func (p *Provider) SetMode(m Mode) error {
	if err := m.validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.count = m, 0
	return nil
}

func (p *Provider) current() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

// next is the mode of the request that has just arrived.
func (p *Provider) next() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	if p.mode.hits(p.count) {
		return p.mode
	}
	return Mode{Mode: ModeOK}
}

func (p *Provider) send(w http.ResponseWriter, r *http.Request) {
	var in struct{ To, Text string }
	key := r.Header.Get("Idempotency-Key")
	err := json.NewDecoder(r.Body).Decode(&in)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		ops.Problem(w, http.StatusRequestEntityTooLarge, "too-large", "a message has at most 16 KiB")
		return
	case err != nil || in.To == "" || in.Text == "":
		ops.Problem(w, http.StatusBadRequest, "invalid", `send {"to": "...", "text": "..."}`)
		return
	case key == "" || len(key) > 128:
		ops.Problem(w, http.StatusBadRequest, "invalid", "the header Idempotency-Key must hold 1 to 128 bytes")
		return
	}
	if err := p.store.arrived(key, in.To, in.Text); err != nil {
		refuse(w, err)
		return
	}
	mode := p.next()
	switch mode.Mode {
	case ModeSlow:
		if !p.wait(w, r, mode.delay()) {
			return // the sender has gone: nothing was accepted
		}
	case ModeError:
		ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "the provider is in mode error")
		return
	case ModeReject:
		ops.Problem(w, http.StatusUnprocessableEntity, "rejected", "the provider is in mode reject")
		return
	case ModeRateLimited:
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(mode.delay().Seconds()))))
		ops.Problem(w, http.StatusTooManyRequests, "rate-limited", "the provider is in mode rate_limited")
		return
	}
	m, err := p.store.accept(key, in.To, in.Text)
	if err != nil {
		refuse(w, err)
		return
	}
	switch mode.Mode {
	case ModeAcceptThenHang:
		p.wait(w, r, mode.delay())
		panic(http.ErrAbortHandler) // closes the connection without an answer
	case ModeAcceptThenError:
		ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "the provider is in mode accept_then_error")
	case ModeAcceptThenReset:
		reset(w)
	default:
		ops.WriteJSON(w, http.StatusAccepted, map[string]string{"message_id": m.MessageID})
	}
}

func refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, errKeyReused) {
		ops.Problem(w, http.StatusConflict, "key-reused", err.Error())
		return
	}
	ops.Problem(w, http.StatusInternalServerError, "internal", "the message could not be stored")
}

// wait holds a request for d. It reports false when the sender left or the server was told to stop meanwhile.
func (p *Provider) wait(w http.ResponseWriter, r *http.Request, d time.Duration) bool {
	// The server's own time-outs are for honest requests; this one is slow on purpose.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	<-ctx.Done()
	return r.Context().Err() == nil
}

// reset drops the connection with a TCP reset in place of an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // not HTTP/1.1: a closed stream is the nearest thing
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (p *Provider) ask(w http.ResponseWriter, r *http.Request) {
	m, known := p.store.find(r.URL.Query().Get("key"))
	if !known {
		ops.Problem(w, http.StatusNotFound, "unknown-key", "no message was accepted under this key")
		return
	}
	ops.WriteJSON(w, http.StatusOK, map[string]any{
		"status": "accepted", "key": m.Key, "message_id": m.MessageID, "received_at": m.ReceivedAt, "attempts": m.Attempts,
	})
}

func (p *Provider) putMode(w http.ResponseWriter, r *http.Request) {
	var m Mode
	err := json.NewDecoder(r.Body).Decode(&m)
	if err == nil {
		err = p.SetMode(m)
	}
	if err != nil {
		ops.Problem(w, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	ops.WriteJSON(w, http.StatusOK, m)
}
