package search

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"example.com/paycast/shared/elastic"
	"example.com/paycast/shared/event"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/telemetry/echoroute"
)

const (
	usualLimit = 100
	maxLimit   = 500
	maxWords   = 200 // characters of q
)

// found is the answer of GET /orders; openapi.yaml describes it.
type found struct {
	Orders []document `json:"orders"`
	Total  int64      `json:"total"`
	Next   string     `json:"next"`
}

type api struct {
	index *elastic.Index
	log   *slog.Logger
}

func routes(index *elastic.Index, log *slog.Logger) http.Handler {
	a := api{index, log}
	e := echo.New()
	e.Use(echoroute.Name)
	e.HTTPErrorHandler = a.answerError
	e.GET("/orders", a.getOrders)
	return e
}

func (a api) getOrders(c echo.Context) error {
	q, err := readQuery(c.QueryParams())
	if err != nil {
		return err
	}
	limit := q.Limit
	q.Limit++ // one more tells whether there is a next page
	page, err := a.index.Search(c.Request().Context(), q)
	if err != nil {
		return err
	}
	answer := found{Orders: []document{}, Total: page.Total}
	for n, hit := range page.Hits {
		if n == limit {
			answer.Next = encodeCursor(page.Hits[n-1].Sort)
			break
		}
		var d document
		if err := json.Unmarshal(hit.Source, &d); err != nil {
			return fmt.Errorf("the document of order %s cannot be read (%T)", hit.ID, err)
		}
		answer.Orders = append(answer.Orders, d)
	}
	ops.WriteJSON(c.Response(), http.StatusOK, answer)
	return nil
}

// badParameter is a request's fault. Its text names the parameter and never repeats the value.
type badParameter string

func (b badParameter) Error() string { return string(b) }

// readQuery turns the parameters into a query; an empty one counts as absent. Orders made at the same moment are sorted
// by their number, so that pages neither skip nor repeat one.
func readQuery(given url.Values) (elastic.Query, error) {
	q := elastic.Query{
		Match: map[string]string{}, Term: map[string]string{}, Limit: usualLimit,
		Sort: []elastic.Sort{{Field: "created_at", Desc: true}, {Field: "order_no"}},
	}
	if words := given.Get("q"); words != "" {
		if !utf8.ValidString(words) || utf8.RuneCountInString(words) > maxWords {
			return q, badParameter(fmt.Sprintf("q must be text of at most %d characters", maxWords))
		}
		q.Match["title"] = words
	}
	if status := given.Get("status"); status != "" {
		known := []string{event.StatusCreated, event.StatusPaid, event.StatusCanceled, event.StatusClosed}
		if !slices.Contains(known, status) {
			return q, badParameter("status must be one of " + strings.Join(known, ", "))
		}
		q.Term["status"] = status
	}
	if user := given.Get("user_id"); user != "" {
		if !utf8.ValidString(user) || len(user) > 128 {
			return q, badParameter("user_id must be text of at most 128 bytes")
		}
		q.Term["user_id"] = user
	}
	if err := readRange(given, &q); err != nil {
		return q, err
	}
	if limit := given.Get("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > maxLimit {
			return q, badParameter(fmt.Sprintf("limit must be between 1 and %d", maxLimit))
		}
		q.Limit = n
	}
	if after := given.Get("after"); after != "" {
		var ok bool
		if q.After, ok = decodeCursor(after); !ok {
			return q, badParameter("after must be the next of a page before")
		}
	}
	return q, nil
}

func readRange(given url.Values, q *elastic.Query) error {
	var r elastic.Range
	for _, bound := range []struct {
		name string
		time *time.Time
	}{{"from", &r.From}, {"to", &r.To}} {
		text := given.Get(bound.name)
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return badParameter(bound.name + " must be a time after RFC 3339, such as 2026-01-31T15:04:05Z")
		}
		*bound.time = at
	}
	if !r.From.IsZero() && !r.To.IsZero() && r.To.Before(r.From) {
		return badParameter("from must not be later than to")
	}
	if r != (elastic.Range{}) {
		q.Range = map[string]elastic.Range{"created_at": r}
	}
	return nil
}

// A cursor is the sort values of the last order of a page. Clients must not read anything into it.
func encodeCursor(sort []json.RawMessage) string {
	text, err := json.Marshal(sort)
	if err != nil {
		panic(err) // it was JSON a moment ago
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeCursor checks the form strictly, so that Elasticsearch is never asked with something else.
func decodeCursor(cursor string) ([]json.RawMessage, bool) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, false
	}
	var values []json.RawMessage
	var at *int64
	var number *string
	ok := json.Unmarshal(text, &values) == nil && len(values) == 2 &&
		json.Unmarshal(values[0], &at) == nil && at != nil && json.Unmarshal(values[1], &number) == nil && number != nil
	return values, ok
}

// answerError answers every error as a problem. What is not the client's doing is logged here, once, and not shown.
func (a api) answerError(err error, c echo.Context) {
	var bad badParameter
	var routing *echo.HTTPError
	switch {
	case errors.As(err, &bad):
		ops.Problem(c.Response(), http.StatusBadRequest, "bad-parameter", bad.Error())
	case errors.As(err, &routing):
		ops.Problem(c.Response(), routing.Code, "no-such-thing", "see openapi.yaml for what this service answers")
	case elastic.Down(err):
		a.log.WarnContext(c.Request().Context(), "answering", "path", c.Path(), "error", err)
		c.Response().Header().Set("Retry-After", "1")
		ops.Problem(c.Response(), http.StatusServiceUnavailable, "unavailable", "the index does not answer; try again")
	default:
		a.log.ErrorContext(c.Request().Context(), "answering", "path", c.Path(), "error", err)
		ops.Problem(c.Response(), http.StatusInternalServerError, "internal", "the search failed; see the log")
	}
}
