// Package ops is the operations side of every process: health, readiness and metrics in the open, everything else
// behind one token.
//
// A process mounts what operators may look at or do with Server.Handle; the patterns stand under /ops/ and are closed
// unless the request carries "Authorization: Bearer $OPS_TOKEN". Without a token in the configuration they stay closed.
// Client is the other end, for tools and for services that ask each other.
package ops

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout bounds one readiness check, so that /readyz answers while a part hangs.
const checkTimeout = 2 * time.Second

// Server is an http.Handler for OPS_ADDR.
type Server struct {
	mux    *http.ServeMux
	token  string
	mu     sync.Mutex
	checks map[string]func(context.Context) error
}

// NewServer serves the metrics of reg and guards /ops/ with token; an empty token closes it.
func NewServer(token string, reg *prometheus.Registry) *Server {
	s := &Server{mux: http.NewServeMux(), token: token, checks: map[string]func(context.Context) error{}}
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s.mux.Handle("/ops/", Guard(s.token, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Problem(w, http.StatusNotFound, noOperation, "no such operation")
	})))
	return s
}

// Handle mounts h behind the token. The pattern is a net/http one and must stand under /ops/, as in "GET /ops/outbox". h gets
// no request whose dry_run is anything but true, false or absent, and none whose address is no text.
func (s *Server) Handle(pattern string, h http.Handler) {
	if _, path, ok := strings.Cut(pattern, " "); !ok || !strings.HasPrefix(path, "/ops/") {
		panic("ops: pattern " + pattern + " is not of the form METHOD /ops/...")
	}
	s.mux.Handle(pattern, Guard(s.token, understood(h)))
}

// Ready adds a condition to /readyz. The check's error is shown there, so it must not hold secrets.
func (s *Server) Ready(name string, check func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks[name] = check
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Guard answers with h only where the request carries "Authorization: Bearer " and token; 401 without, and 403 to
// everybody while token is empty. Bodies are limited to 1 MiB.
func Guard(token string, h http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		switch {
		case token == "":
			Problem(w, http.StatusForbidden, "closed", "operations are closed: this process was started without OPS_TOKEN")
		case !ok || subtle.ConstantTimeCompare(want[:], got[:]) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			Problem(w, http.StatusUnauthorized, "unauthorized", "send the header Authorization: Bearer $OPS_TOKEN")
		default:
			http.MaxBytesHandler(h, 1<<20).ServeHTTP(w, r)
		}
	})
}

// ready runs all checks at once and answers 200 only when each of them passes.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	checks := maps.Clone(s.checks)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	names := slices.Sorted(maps.Keys(checks))
	results := make([]string, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			results[i] = "ok"
			if err := checks[name](ctx); err != nil {
				results[i] = err.Error()
			}
		})
	}
	wg.Wait()
	status, body := http.StatusOK, map[string]any{"status": "ready"}
	shown := map[string]string{}
	for i, name := range names {
		shown[name] = results[i]
		if results[i] != "ok" {
			status, body["status"] = http.StatusServiceUnavailable, "not ready"
		}
	}
	body["checks"] = shown
	WriteJSON(w, status, body)
}
