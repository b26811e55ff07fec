package consumer

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/ops"
)

// mount adds what operators and reconciliation may ask. Lists never hold payloads.
func (c *consumer) mount(s *ops.Server) {
	s.Handle("GET /ops/facts", http.HandlerFunc(c.getFacts))
	s.Handle("GET /ops/consume-log", http.HandlerFunc(c.getLog))
	s.Handle("GET /ops/dead-letters", http.HandlerFunc(c.getLetters))
	s.Handle("GET /ops/dead-letters/{id}", http.HandlerFunc(c.getLetter))
	s.Handle("POST /ops/dead-letters/{id}/contents", http.HandlerFunc(c.letterContents))
	s.Handle("POST /ops/dead-letters/{id}/{verb}", http.HandlerFunc(c.decideLetter))
	s.Handle("POST /ops/dead-letters/erase", http.HandlerFunc(c.eraseLetters))
}

func (c *consumer) getFacts(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, ok := limitOf(w, q, facts.DefaultLimit, facts.MaxLimit)
	if !ok {
		return
	}
	events := q["event_id"]
	if len(events) > facts.MaxLimit {
		ops.Problem(w, http.StatusBadRequest, "too-many", "ask for fewer events at a time")
		return
	}
	page := facts.GroupPage{Group: c.Group}
	var err error
	if page.Facts, err = inbox.Facts(r.Context(), c.DB, c.Group, q.Get("after"), limit, events); err != nil {
		c.internal(w, "listing facts", err)
		return
	}
	if len(events) == 0 && len(page.Facts) == limit {
		page.Next = page.Facts[limit-1].EventID
	}
	if c.Effects != nil && len(page.Facts) > 0 {
		if err := c.Effects(r.Context(), page.Facts); err != nil {
			c.internal(w, "reading effects", err)
			return
		}
	}
	if c.Faults != nil && len(events) == 0 && page.Next == "" {
		if page.Faults, err = c.Faults(r.Context()); err != nil {
			c.internal(w, "looking for faults", err)
			return
		}
	}
	ops.WriteJSON(w, http.StatusOK, page)
}

const (
	defaultList = 100
	maxList     = 1000
)

func (c *consumer) getLog(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, ok := limitOf(w, q, defaultList, maxList)
	if !ok || !oneOf(w, q, "status", inbox.StatusProcessing, inbox.StatusSuccess, inbox.StatusRetry, inbox.StatusWaiting, inbox.StatusRejected, inbox.StatusDead) {
		return
	}
	rows, err := inbox.Log(r.Context(), c.DB, c.Group, inbox.Filter{
		Status: q.Get("status"), OrderNo: q.Get("order_no"), After: q.Get("after"), Limit: limit,
	})
	if err != nil {
		c.internal(w, "listing the consume log", err)
		return
	}
	next := ""
	if len(rows) == limit {
		next = rows[limit-1].EventID
	}
	ops.WriteJSON(w, http.StatusOK, map[string]any{"group": c.Group, "rows": rows, "next": next})
}

func (c *consumer) getLetters(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, ok := limitOf(w, q, defaultList, maxList)
	if !ok || !oneOf(w, q, "state", "OPEN", "RELEASED", "DISCARDED") {
		return
	}
	var after int64
	if a := q.Get("after"); a != "" {
		var err error
		if after, err = strconv.ParseInt(a, 10, 64); err != nil {
			ops.Problem(w, http.StatusBadRequest, "bad-parameter", "after must be the next of a page before")
			return
		}
	}
	rows, err := inbox.Letters(r.Context(), c.DB, c.Group, after, inbox.Filter{
		Status: q.Get("state"), OrderNo: q.Get("order_no"), Limit: limit,
	})
	if err != nil {
		c.internal(w, "listing dead letters", err)
		return
	}
	next := ""
	if len(rows) == limit {
		next = strconv.FormatInt(rows[limit-1].LetterID, 10)
	}
	ops.WriteJSON(w, http.StatusOK, map[string]any{"group": c.Group, "letters": rows, "next": next})
}

// limitOf reads the page's size and answers what it cannot read.
func limitOf(w http.ResponseWriter, q url.Values, usual, most int) (int, bool) {
	s := q.Get("limit")
	if s == "" {
		return usual, true
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		ops.Problem(w, http.StatusBadRequest, "bad-parameter", "limit must be between 1 and "+strconv.Itoa(most))
		return 0, false
	}
	return n, true
}

// oneOf answers a word that no row can have: an empty list would say that there is none.
func oneOf[T ~string](w http.ResponseWriter, q url.Values, name string, words ...T) bool {
	word := T(q.Get(name))
	if word == "" || slices.Contains(words, word) {
		return true
	}
	told := make([]string, len(words))
	for i, one := range words {
		told[i] = string(one)
	}
	last := len(told) - 1
	ops.Problem(w, http.StatusBadRequest, "bad-parameter", name+" must be "+strings.Join(told[:last], ", ")+" or "+told[last])
	return false
}

// internal answers what is no fault of who asks: the database is away, and asking again later is right.
func (c *consumer) internal(w http.ResponseWriter, doing string, err error) {
	c.log.Error(doing, "group", c.Group, "error", scrub(err))
	ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "the database did not answer; see the log")
}
