package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	secretPrefix = "whsec_"
	// minSecretBytes is the least that Standard Webhooks allows. HMAC itself accepts an empty key, with which
	// everybody can sign.
	minSecretBytes = 24
)

// published are secrets printed in the documents and tests of Standard Webhooks. They have the right form and end up
// in configurations by copy and paste.
var published = map[string]bool{
	"C2FVsBQIhrscChlQIMV+b5sSYspob7oD": true,
	"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": true,
}

// sampleWords give away a placeholder, typed either as the secret or before it was encoded.
var sampleWords = []string{"changeme", "change-me", "change_me", "example", "sample", "placeholder", "replace"}

// Secrets are the signing secrets in force, newest first: the first one signs, any one verifies. During a rotation
// the new secret stands before the old one until the provider has switched. The zero value verifies nothing.
type Secrets struct {
	keys []*standardwebhooks.Webhook
}

// NewSecret makes a fresh random secret in the form that ParseSecrets reads.
func NewSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // crypto/rand does not fail; it ends the process instead
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParseSecrets reads "whsec_<base64>[,whsec_<base64>...]", newest first. It refuses an empty, short or well-known
// secret, because a service that starts with one verifies nothing while it looks as if it did. Every problem is in one
// error, which names the place of a bad secret in the list and never the secret.
func ParseSecrets(list string) (Secrets, error) {
	if strings.TrimSpace(list) == "" {
		return Secrets{}, fmt.Errorf("no webhook secret is set: %s", howTo)
	}
	var s Secrets
	var bad []error
	parts := strings.Split(list, ",")
	for i, text := range parts {
		key, err := parseSecret(strings.TrimSpace(text))
		if err != nil {
			bad = append(bad, fmt.Errorf("webhook secret %d of %d %w", i+1, len(parts), err))
			continue
		}
		s.keys = append(s.keys, key)
	}
	if len(bad) > 0 {
		return Secrets{}, fmt.Errorf("%w: %s", errors.Join(bad...), howTo)
	}
	return s, nil
}

const howTo = "give whsec_ and the base64 of at least 24 random bytes (whsec_$(openssl rand -base64 32)), several comma-separated, newest first"

func parseSecret(text string) (*standardwebhooks.Webhook, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	switch {
	case text == "":
		return nil, errors.New("is empty")
	case !ok:
		return nil, errors.New("does not begin with whsec_")
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case err != nil:
		return nil, errors.New("is not base64") // the cause would quote the secret
	case len(key) < minSecretBytes:
		return nil, fmt.Errorf("has %d bytes of at least %d", len(key), minSecretBytes)
	case isSample(encoded, key):
		return nil, errors.New("is a sample that others know")
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// isSample also catches keys like 32 zero bytes: a random key of 24 bytes has fewer than 8 different ones about once
// in 10^20.
func isSample(encoded string, key []byte) bool {
	distinct := map[byte]bool{}
	for _, b := range key {
		distinct[b] = true
	}
	if published[encoded] || len(distinct) < 8 {
		return true
	}
	for _, text := range []string{strings.ToLower(encoded), strings.ToLower(string(key))} {
		for _, word := range sampleWords {
			if strings.Contains(text, word) {
				return true
			}
		}
	}
	return false
}

// String keeps the secrets out of logs.
func (s Secrets) String() string { return fmt.Sprintf("%d webhook secrets", len(s.keys)) }
