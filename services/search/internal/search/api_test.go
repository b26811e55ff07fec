package search_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/testkit"
)

func TestASearchFindsOrdersByWhatIsInThem(t *testing.T) {
	t.Parallel()
	w := serve(t)
	for n, title := range []string{"A blue lamp", "A green lamp", "東京の写真", "Blue & white chair"} {
		o := orderAt(fmt.Sprintf("o-%d", n), int64(n%3+1))
		o.Title, o.UserID, o.CreatedAt = title, fmt.Sprintf("u-%d", n%2), at(n)
		w.send(o)
		w.eventually(o.OrderNo, o.Version, "applied")
	}
	w.refresh()
	second := func(n int) string { return at(n).Format(time.RFC3339Nano) }
	for name, c := range map[string]struct {
		query url.Values
		want  []string
	}{
		"everything, newest first": {nil, []string{"o-3", "o-2", "o-1", "o-0"}},
		"a word":                   {url.Values{"q": {"LAMP"}}, []string{"o-1", "o-0"}},
		"all words, in any order":  {url.Values{"q": {"lamp blue"}}, []string{"o-0"}},
		"words of other scripts":   {url.Values{"q": {"写真"}}, []string{"o-2"}},
		"no word":                  {url.Values{"q": {"&"}}, nil},
		"a status":                 {url.Values{"status": {"CREATED"}}, []string{"o-3", "o-0"}},
		"a customer":               {url.Values{"user_id": {"u-1"}}, []string{"o-3", "o-1"}},
		"a time, from and to":      {url.Values{"from": {second(1)}, "to": {second(3)}}, []string{"o-2", "o-1"}},
		"a time zone":              {url.Values{"from": {at(3).In(time.FixedZone("", 3600)).Format(time.RFC3339Nano)}}, []string{"o-3"}},
		"all of it":                {url.Values{"q": {"blue"}, "status": {"CREATED"}, "user_id": {"u-1"}, "from": {second(0)}}, []string{"o-3"}},
		"empty parameters":         {url.Values{"q": {""}, "status": {""}, "user_id": {""}, "from": {""}, "to": {""}, "limit": {""}, "after": {""}}, []string{"o-3", "o-2", "o-1", "o-0"}},
		"far away times":           {url.Values{"from": {"0001-01-02T00:00:00Z"}, "to": {"9999-12-31T00:00:00Z"}}, []string{"o-3", "o-2", "o-1", "o-0"}},
	} {
		p := w.search(c.query)
		assert.Equal(t, c.want, p.numbers(), name)
		assert.EqualValues(t, len(c.want), p.Total, name)
		assert.Empty(t, p.Next, name)
	}
}

func TestPagesHoldEachOrderOnce(t *testing.T) {
	t.Parallel()
	w := serve(t)
	var want []string
	for n := range 7 { // all made at the same moment
		o := orderAt(fmt.Sprintf("o-%d", n), 1)
		w.send(o)
		want = append(want, o.OrderNo)
	}
	for _, no := range want {
		w.eventually(no, 1, "applied")
	}
	w.refresh()
	for limit, pages := range map[string]int{"1": 7, "3": 3, "7": 1, "500": 1} {
		var got []string
		query := url.Values{"limit": {limit}}
		for n := 1; ; n++ {
			p := w.search(query)
			assert.EqualValues(t, 7, p.Total)
			got = append(got, p.numbers()...)
			if p.Next == "" {
				assert.Equal(t, pages, n, "limit %s", limit)
				break
			}
			query.Set("after", p.Next)
		}
		assert.Equal(t, want, got, "limit %s", limit)
	}
}

func TestAParameterThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	w := serve(t)
	before := len(w.es.Requests())
	for name, values := range map[string][]string{
		"q":       {strings.Repeat("x", 201), "\xff"},
		"status":  {"paid", "REFUNDED"},
		"user_id": {strings.Repeat("x", 129), "\xff"},
		"from":    {"yesterday", "2026-11-29", "2026-13-01T00:00:00Z"},
		"to":      {"1795984866"},
		"limit":   {"0", "-1", "501", "ten", "1.5"},
		"after":   {"!", "e30", "WzEsMl0", "WyJ4IiwiYSJd", "WzFd", "bnVsbA", "W251bGwsbnVsbF0"},
	} {
		for _, value := range values {
			status, body := w.get(url.Values{name: {value}})
			require.Equal(t, http.StatusBadRequest, status, "%s=%s", name, value)
			var problem ops.ProblemDetails
			require.NoError(t, json.Unmarshal(body, &problem))
			assert.Equal(t, "urn:paycast:problem:bad-parameter", problem.Type)
			assert.True(t, strings.HasPrefix(problem.Detail, name+" must "), problem.Detail)
			if len(value) > 4 {
				assert.NotContains(t, problem.Detail, value)
			}
		}
	}
	status, body := w.get(url.Values{"from": {"2026-02-01T00:00:00Z"}, "to": {"2026-01-01T00:00:00Z"}})
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, string(body), "from must not be later than to")
	for _, r := range w.es.Requests()[before:] {
		assert.NotContains(t, r.Path, "_search", "Elasticsearch is not asked")
	}
	status, body = w.do("POST", "http://"+w.env["HTTP_ADDR"]+"/orders", "{}")
	assert.Equal(t, http.StatusMethodNotAllowed, status, "%s", body)
	status, body = w.do("GET", "http://"+w.env["HTTP_ADDR"]+"/nothing", "")
	assert.Equal(t, http.StatusNotFound, status, "%s", body)
}

func TestAnOrderIsFoundSoonAfterItsEventWithoutAnybodyRefreshing(t *testing.T) {
	t.Parallel()
	w := serve(t)
	w.send(orderAt("a", 1))
	testkit.Eventually(t, patience, func() error {
		if p := w.search(url.Values{"q": {"lamp"}}); p.Total != 1 {
			return fmt.Errorf("%d found", p.Total)
		}
		return nil
	})
}
