package ops

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// ReadJSON reads a request's body into into: one JSON value of readable text, and no field that into does not know. A misspelt
// filter, or a dry_run in the wrong place, would otherwise be left out in silence. The error quotes no value.
func ReadJSON(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body) // bounded by Guard
	if err != nil {
		return errors.New("the body did not arrive, or is longer than 1 MiB")
	}
	if !utf8.Valid(body) { // json would put another character in its place
		return errNotText
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the JSON value")
	}
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		token, err := d.Token()
		if err != nil {
			return nil // the end: all of it was read above
		}
		if s, ok := token.(string); ok && !IsText(s) {
			return errNotText
		}
	}
}

var errNotText = errors.New("it holds bytes that are no text")

// IsText reports whether a database can keep s as text: PostgreSQL takes UTF-8, and no NUL.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// understood stops a request that cannot be read in one way only, or holds what no text in the database can be. One that may
// mean a dry run must not be done: ?dry_run=1 would be, and so would one behind a query of which net/http drops a part.
func understood(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		said := query["dry_run"]
		if err != nil || len(said) > 1 || len(said) == 1 && said[0] != "true" && said[0] != "false" {
			Problem(w, http.StatusBadRequest, "bad-request", "nothing was done; write dry_run=true to only look, dry_run=false or nothing to act, and escape the other parameters")
			return
		}
		for name, values := range query {
			if !IsText(name + strings.Join(values, " ")) {
				Problem(w, http.StatusBadRequest, "bad-request", "nothing was done; a parameter holds bytes that are no text")
				return
			}
		}
		if !IsText(r.URL.Path) { // and no id has such a name
			Problem(w, http.StatusNotFound, "not-found", "the address holds bytes that are no text")
			return
		}
		h.ServeHTTP(w, r)
	})
}
