package payment

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxBody bounds a request body in bytes, chunked or not.
const maxBody = 64 << 10

// problem is an error that the client is told about.
type problem struct {
	status int
	kind   string // names the problem for programs
	detail string // says to a person what to do
}

func (p *problem) Error() string { return p.kind + ": " + p.detail }

// invalid shows all faults of a request in one line.
func invalid(faults error) *problem {
	return &problem{http.StatusBadRequest, "invalid", strings.ReplaceAll(faults.Error(), "\n", "; ")}
}

// readBody returns the raw bytes of a JSON request. Signatures and hashes are over these bytes, so they are neither
// decompressed nor decoded here.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(params["charset"])
	if err != nil || mediaType != "application/json" || charset != "" && charset != "utf-8" {
		return nil, &problem{http.StatusUnsupportedMediaType, "unsupported-media-type", "send Content-Type: application/json in UTF-8"}
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, &problem{http.StatusUnsupportedMediaType, "unsupported-media-type", "send the body without Content-Encoding"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, &problem{http.StatusRequestEntityTooLarge, "too-large", fmt.Sprintf("the body is larger than %d bytes", maxBody)}
	case err != nil:
		return nil, &problem{http.StatusBadRequest, "invalid", "the body did not arrive completely"}
	}
	return body, nil
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// decodeJSON reads one JSON value that can be understood in one way only. Unknown fields are accepted. Refused is what
// encoding/json would settle in silence: a name given twice (the last would win, and names match in any case), bytes
// that are not UTF-8 (replaced), a second value. NUL is refused because Postgres cannot store it.
// The error names the fault and never quotes the body.
func decodeJSON(body []byte, into any) error {
	if !utf8.Valid(body) {
		return errors.New("the body is not UTF-8")
	}
	if err := unambiguous(json.NewDecoder(bytes.NewReader(body))); err != nil {
		return err
	}
	var wrongType *json.UnmarshalTypeError
	switch err := json.Unmarshal(body, into); {
	case err == nil:
		return nil
	case errors.Is(err, errNotMinor):
		return errNotMinor
	case errors.As(err, &wrongType):
		return fmt.Errorf("%q must not be a JSON %s", wrongType.Field, wrongType.Value)
	default:
		return errNotJSON
	}
}

var (
	errNotJSON  = errors.New("the body is not a JSON value")
	errNotMinor = errors.New("amount must be a whole number of minor units")
)

// unambiguous walks over the tokens of one value.
func unambiguous(d *json.Decoder) error {
	d.UseNumber()
	type level struct {
		names   map[string]bool // nil inside an array
		isValue bool            // the next token of an object is a value
	}
	var open []*level
	for {
		token, err := d.Token()
		if err != nil {
			return errNotJSON
		}
		if s, ok := token.(string); ok && strings.ContainsRune(s, 0) {
			return errors.New("the body holds a NUL character")
		}
		var top *level
		if len(open) > 0 {
			top = open[len(open)-1]
		}
		if name, ok := token.(string); ok && top != nil && top.names != nil && !top.isValue {
			folded := strings.ToLower(strings.ToUpper(name)) // both: U+017F and U+212A match s and k
			if top.names[folded] {
				return errors.New("the body has a field twice")
			}
			top.names[folded], top.isValue = true, true
			continue
		}
		switch token {
		case json.Delim('{'):
			open = append(open, &level{names: map[string]bool{}})
			continue
		case json.Delim('['):
			open = append(open, &level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if len(open) == 0 { // the value is complete
			if _, err := d.Token(); !errors.Is(err, io.EOF) {
				return errors.New("the body holds more than one JSON value")
			}
			return nil
		}
		open[len(open)-1].isValue = false
	}
}

// minor is an amount in minor units as JSON writes it. 1999 and 1999.0 are the same amount; a fraction of a minor unit
// is refused and never rounded, and no float is involved.
type minor int64

func (m *minor) UnmarshalJSON(text []byte) error {
	whole, fraction, _ := strings.Cut(string(text), ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || strings.Trim(fraction, "0") != "" {
		return errNotMinor
	}
	*m = minor(n)
	return nil
}
