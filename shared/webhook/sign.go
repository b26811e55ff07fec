package webhook

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Sign puts the three headers on a callback as the provider does, with the newest secret. It is for the provider in
// deploy/world and for tests; a service only verifies. An id stays the same over all attempts of one callback, at is
// the time of the attempt.
func (s Secrets) Sign(h http.Header, id string, at time.Time, body []byte) error {
	if len(s.keys) == 0 {
		return errors.New("signing a webhook: no secret")
	}
	if !validID(id) {
		return errors.New("signing a webhook: the id must be 1 to 128 visible ASCII characters without a full stop")
	}
	signature, err := s.keys[0].Sign(id, at, body)
	if err != nil {
		return err
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(HeaderSignature, signature)
	return nil
}
