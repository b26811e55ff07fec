package elastictest

import (
	"net/http"
	"strings"
	"time"
)

// Kind is a way to fail.
type Kind string

const (
	Fine        Kind = ""            // no fault
	Silent      Kind = "silent"      // closes the connection, does nothing
	LoseAnswer  Kind = "lose_answer" // carries a document write out, then closes the connection
	Reject      Kind = "reject"      // 429, as a full queue answers
	Unavailable Kind = "unavailable" // 503
	Broken      Kind = "broken"      // 500
)

// Fault is what goes wrong from now on. The zero value ends it. An index is made read-only as in Elasticsearch, by its
// setting index.blocks.write or index.blocks.read_only_allow_delete.
type Fault struct {
	Kind  Kind
	Delay time.Duration // waits first; with Kind Fine that is all
	ID    string        // only writes of this document, alone or as a bulk item (Reject, Unavailable, Broken)
	Times int           // ends by itself after so many requests or items; 0: until it is set anew
}

// SetFault replaces the fault in force.
func (s *Server) SetFault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// effect is what a fault does to one request.
type effect struct {
	delay      time.Duration
	refusal    *answer
	silent     bool // nothing is done
	loseAnswer bool // all is done
}

func (s *Server) takeFault(r *http.Request) effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fault
	if f == (Fault{}) || f.ID != "" {
		return effect{}
	}
	write := r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/_doc/") || strings.HasSuffix(r.URL.Path, "/_bulk")
	if f.Kind == LoseAnswer && !write {
		return effect{}
	}
	s.used()
	return effect{f.Delay, f.refusal(), f.Kind == Silent, f.Kind == LoseAnswer}
}

// documentFault is the answer for a write of this document, or nil.
func (s *Server) documentFault(id string) *answer {
	if s.fault.ID == "" || s.fault.ID != id {
		return nil
	}
	refusal := s.fault.refusal()
	s.used()
	return refusal
}

func (s *Server) used() {
	if s.fault.Times > 0 {
		if s.fault.Times--; s.fault.Times == 0 {
			s.fault = Fault{}
		}
	}
}

func (f Fault) refusal() *answer {
	var a answer
	switch f.Kind {
	case Reject:
		a = refuse(429, "es_rejected_execution_exception", "rejected execution: the queue is full")
	case Unavailable:
		a = refuse(503, "unavailable_shards_exception", "primary shard is not active")
	case Broken:
		a = refuse(500, "illegal_state_exception", "broken on request")
	default:
		return nil
	}
	return &a
}
