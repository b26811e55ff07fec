package webhook

import (
	"net/http"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The headers of a signed callback.
const (
	HeaderID        = standardwebhooks.HeaderWebhookID
	HeaderTimestamp = standardwebhooks.HeaderWebhookTimestamp
	HeaderSignature = standardwebhooks.HeaderWebhookSignature
)

// Tolerance is how far the signed timestamp may lie from our clock, in both directions. Inside it a recorded callback
// can be sent again, which the caller's memory of webhook ids makes harmless.
const Tolerance = 5 * time.Minute

// maxIDBytes bounds what a caller stores of an id.
const maxIDBytes = 128

// Refused is why a callback was not accepted; it is an error, and its value is fit for a metric's label. It goes to
// metrics and logs only: an answer that told reasons apart would help whoever tries to forge one.
type Refused string

// The reasons.
const (
	RefusedHeaders   Refused = "headers"   // one of the three is missing, given twice, or not well formed
	RefusedSignature Refused = "signature" // no secret of ours signed these bytes under this id and timestamp
	RefusedTooOld    Refused = "too_old"   // signed by us, but long ago
	RefusedTooNew    Refused = "too_new"   // signed by us, for a time yet to come
)

func (r Refused) Error() string { return "webhook refused: " + string(r) }

// Reasons lists every Refused, so that a counter can start at zero for each.
func Reasons() []Refused {
	return []Refused{RefusedHeaders, RefusedSignature, RefusedTooOld, RefusedTooNew}
}

// Verify tells whether body, the raw bytes of the request, was signed with one of our secrets within Tolerance of now.
// Signatures are compared in constant time. The error is always a Refused.
func (s Secrets) Verify(h http.Header, body []byte) error {
	return s.verifyAt(time.Now(), h, body)
}

func (s Secrets) verifyAt(now time.Time, h http.Header, body []byte) error {
	at, ok := readHeaders(h)
	if !ok {
		return RefusedHeaders
	}
	if !s.signed(h, body) {
		return RefusedSignature
	}
	// Age comes after the signature, so that "too old" is said only of what the provider really sent.
	switch age := now.Sub(at); {
	case age > Tolerance:
		return RefusedTooOld
	case age < -Tolerance:
		return RefusedTooNew
	}
	return nil
}

// readHeaders demands each header exactly once: of two values, this check and a reader further on could each pick
// another one.
func readHeaders(h http.Header) (at time.Time, ok bool) {
	for _, name := range []string{HeaderID, HeaderTimestamp, HeaderSignature} {
		if values := h.Values(name); len(values) != 1 || values[0] == "" {
			return time.Time{}, false
		}
	}
	if !validID(h.Get(HeaderID)) {
		return time.Time{}, false
	}
	// The library signs the number, not its text. Other spellings of it ("+5", "05") would verify as well, so that
	// header bytes nobody signed would pass.
	text := h.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != text {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0), true
}

// validID accepts visible ASCII without a full stop. The signed text is id.timestamp.body: with full stops in the id
// the same text could be cut at other places into another id, time and body.
func validID(id string) bool {
	if id == "" || len(id) > maxIDBytes {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '.' {
			return false
		}
	}
	return true
}

func (s Secrets) signed(h http.Header, body []byte) bool {
	for _, key := range s.keys {
		if key.VerifyIgnoringTimestamp(body, h) == nil {
			return true
		}
	}
	return false
}
