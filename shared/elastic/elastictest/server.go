package elastictest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Server is the stand-in as an http.Handler. It is safe for use by many goroutines.
type Server struct {
	mu       sync.Mutex
	state    *state
	fault    Fault
	requests []Request
}

// Request is one entry of the request log.
type Request struct {
	Method, Path string
	Query        url.Values
	Status       int     // 0 when the connection was closed without an answer
	Writes       []Write // the documents that it tried to write or delete
}

// Write is one attempt to change a document, alone or as a bulk item. Version and Type are as the request gave them.
type Write struct {
	ID      string
	Version int64
	Type    string // version_type; empty for an unversioned write
	Status  int
}

// keepRequests bounds the log: a stand-in can run for days.
const keepRequests = 10_000

// New opens a stand-in that keeps its data in dir, which may hold data already. With dir == "" it forgets all at the end.
func New(dir string) (*Server, error) {
	st, err := open(dir)
	if err != nil {
		return nil, err
	}
	return &Server{state: st}, nil
}

// Close closes the journal. Nothing is lost without it.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.close()
}

// Requests returns what was asked so far, oldest first; of a long run, the last few thousand.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fault := s.takeFault(r)
	if fault.delay > 0 {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(fault.delay):
		}
	}
	a := s.handle(r, body, fault)
	if fault.silent || fault.loseAnswer {
		panic(http.ErrAbortHandler) // net/http's way to close a connection without an answer
	}
	a.send(w)
}

// handle answers one request at a time, and logs it.
func (s *Server) handle(r *http.Request, body []byte, fault effect) (a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query()}
	switch {
	case fault.silent:
	case fault.refusal != nil:
		a = *fault.refusal
	default:
		a = s.route(r, body, &entry)
	}
	if !fault.loseAnswer {
		entry.Status = a.status
	}
	if len(s.requests) == keepRequests {
		s.requests = append(s.requests[:0], s.requests[keepRequests/2:]...)
	}
	s.requests = append(s.requests, entry)
	return a
}

// route calls the handler for a path. Patterns of net/http cannot tell /_alias/{name} from /{index}/_mapping.
func (s *Server) route(r *http.Request, body []byte, entry *Request) answer {
	var seg []string
	for part := range strings.SplitSeq(strings.Trim(r.URL.EscapedPath(), "/"), "/") {
		name, err := url.PathUnescape(part)
		if err != nil {
			return refuse(400, "illegal_argument_exception", "malformed path")
		}
		seg = append(seg, name)
	}
	switch {
	case len(seg) >= 2 && seg[0] == "_cluster" && seg[1] == "health":
		return s.health(seg[2:])
	case len(seg) == 1 && seg[0] == "_aliases" && r.Method == http.MethodPost:
		return s.updateAliases(body)
	case strings.HasPrefix(seg[0], "_"):
	case len(seg) == 1 && r.Method == http.MethodPut:
		return s.createIndex(seg[0], body)
	case len(seg) == 1 && r.Method == http.MethodDelete:
		return s.dropIndex(seg[0])
	case len(seg) == 2:
		return s.routeIndex(r, seg[0], seg[1], body, entry)
	case len(seg) == 3 && seg[1] == "_doc" && r.Method == http.MethodGet:
		return s.getDocument(seg[0], seg[2])
	case len(seg) == 3 && seg[1] == "_doc" && r.Method == http.MethodPut:
		return s.putDocument(seg[0], seg[2], r.URL.Query(), body, entry)
	case len(seg) == 3 && seg[1] == "_doc" && r.Method == http.MethodDelete:
		return s.deleteDocument(seg[0], seg[2], r.URL.Query(), entry)
	}
	return unsupported(r.Method + " " + r.URL.Path)
}

func (s *Server) routeIndex(r *http.Request, name, verb string, body []byte, entry *Request) answer {
	switch r.Method + " " + verb {
	case "GET _mapping":
		return s.getMapping(name)
	case "GET _alias":
		return s.getAliases(name)
	case "PUT _settings":
		return s.putSettings(name, body)
	case "POST _refresh":
		return s.refresh(name)
	case "POST _bulk":
		return s.bulk(name, r.URL.Query(), body, entry)
	case "POST _mget", "GET _mget":
		return s.mget(name, body)
	case "POST _search", "GET _search":
		return s.search(name, body)
	case "POST _count", "GET _count":
		return s.count(name, body)
	}
	return unsupported(r.Method + " " + r.URL.Path)
}

// answer is a status and a JSON body.
type answer struct {
	status int
	body   any
}

// problem is an error inside an answer, of a whole request or of one item.
type problem struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
}

// refuse makes an error answer in Elasticsearch's shape.
func refuse(status int, kind, reason string) answer {
	p := problem{kind, reason}
	return answer{status, map[string]any{
		"error":  map[string]any{"root_cause": []problem{p}, "type": kind, "reason": reason},
		"status": status,
	}}
}

func unsupported(what string) answer {
	return refuse(501, "stand_in_exception", "the stand-in does not know "+what)
}

func noIndex(name string) answer {
	return refuse(404, "index_not_found_exception", "no such index ["+name+"]")
}

func (a answer) problem() problem {
	e := a.body.(map[string]any)["error"].(map[string]any)
	return problem{e["type"].(string), e["reason"].(string)}
}

func (a answer) send(w http.ResponseWriter) {
	w.Header().Set("X-Elastic-Product", "Elasticsearch")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(a.body) // the client is gone; there is nobody to tell
}
