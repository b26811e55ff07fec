package search_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// versioned stands between the service and the index in every test, and fails it when the service writes or deletes a
// document without its order's version: one such write among versioned ones, and an old fact could replace a newer one.
func versioned(t testing.TB, upstream string) string {
	target, err := url.Parse(upstream)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler) // no answer is no answer, and not a 502
	}
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if err := unversioned(r, body); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(web.Close)
	return web.URL
}

// unversioned says what is wrong with a request that changes documents; nil for one that changes none.
func unversioned(r *http.Request, body []byte) error {
	for _, verb := range []string{"_update", "_create", "_update_by_query", "_delete_by_query", "_reindex"} {
		if strings.Contains(r.URL.Path+"/", "/"+verb+"/") {
			return fmt.Errorf("%s writes without our version", verb)
		}
	}
	switch q := r.URL.Query(); {
	case strings.HasSuffix(r.URL.Path, "/_bulk"):
		return unversionedItem(body)
	case !strings.Contains(r.URL.Path, "/_doc/") || r.Method == http.MethodGet || r.Method == http.MethodHead:
		return nil
	case q.Get("version_type") != "external" || q.Get("version") == "":
		return fmt.Errorf("a write with the parameters %q", r.URL.RawQuery)
	}
	return nil
}

// A bulk body is a line for each action, followed by a line with the document unless it is a delete.
func unversionedItem(body []byte) error {
	isDocument := false
	for line := range bytes.Lines(body) {
		if isDocument {
			isDocument = false
			continue
		}
		var action map[string]struct {
			Version int64  `json:"version"`
			Type    string `json:"version_type"`
		}
		if err := json.Unmarshal(line, &action); err != nil {
			return err
		}
		for verb, item := range action {
			isDocument = verb != "delete"
			if verb == "create" || verb == "update" || item.Version < 1 || item.Type != "external" {
				return fmt.Errorf("an item of a bulk: %s", line)
			}
		}
	}
	return nil
}

func TestWritesWithoutTheOrdersVersionAreNoticed(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]bool{
		"PUT /orders/_doc/a?version=2&version_type=external": true,
		"GET /orders/_doc/a":           true,
		"POST /orders/_search":         true,
		"PUT /orders/_doc/a":           false,
		"POST /orders/_doc/":           false,
		"PUT /orders/_doc/a?version=2": false,
		"PUT /orders/_doc/a?version=2&version_type=external_gte":           false,
		"DELETE /orders/_doc/a":                                            false,
		"DELETE /orders/_doc/a?version=3&version_type=external":            true,
		"POST /orders/_update/a":                                           false,
		"POST /orders/_delete_by_query":                                    false,
		"PUT /orders/_create/a?version=1&version_type=external":            false,
		`POST /_bulk {"index":{"version":2,"version_type":"external"}}`:    true,
		`POST /o/_bulk {"delete":{"version":2,"version_type":"external"}}`: true,
		`POST /o/_bulk {"index":{"_id":"a"}}`:                              false,
		`POST /o/_bulk {"update":{"_id":"a"}}`:                             false,
		`POST /o/_bulk {"delete":{"_id":"a"}}`:                             false,
	} {
		line, body, _ := strings.Cut(request, " {")
		method, target, _ := strings.Cut(line, " ")
		if body != "" {
			body = "{" + body + "\n{}\n"
			if strings.Contains(body, `"delete"`) {
				body = strings.TrimSuffix(body, "{}\n")
			}
		}
		err := unversioned(httptest.NewRequestWithContext(t.Context(), method, target, nil), []byte(body))
		require.Equal(t, want, err == nil, "%s: %v", request, err)
	}
}
