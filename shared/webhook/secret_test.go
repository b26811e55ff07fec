package webhook

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecretsThatProtectNothingAreRefused(t *testing.T) {
	t.Parallel()
	encode := func(key string) string { return secretPrefix + base64.StdEncoding.EncodeToString([]byte(key)) }
	for list, want := range map[string]string{
		"":                                 "no webhook secret is set",
		" \n":                              "no webhook secret is set",
		"changeme":                         "does not begin with whsec_",
		"whsec_":                           "has 0 bytes",
		"whsec_changeme":                   "has 6 bytes",
		"whsec_not base64 at all!":         "is not base64",
		encode(strings.Repeat("k", 23)):    "has 23 bytes of at least 24",
		encode(strings.Repeat("\x00", 32)): "is a sample",
		encode("please-ChangeMe-before-use-1234"): "is a sample",
		"whsec_changemechangemechangemechangeme":  "is a sample",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":  "is a sample",
		"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD":  "is a sample",
		NewSecret() + ",":                         "webhook secret 2 of 2 is empty",
		"," + NewSecret():                         "webhook secret 1 of 2 is empty",
	} {
		_, err := ParseSecrets(list)
		require.ErrorContains(t, err, want, "%q", list)
		require.ErrorContains(t, err, "openssl rand -base64 32", "the error must say what to do")
	}
}

func TestEveryBadSecretIsNamedByPlaceAndNoneIsQuoted(t *testing.T) {
	t.Parallel()
	_, err := ParseSecrets("hunter2," + NewSecret() + ",whsec_aHVudGVyMg==")
	require.ErrorContains(t, err, "webhook secret 1 of 3 does not begin with whsec_")
	require.ErrorContains(t, err, "webhook secret 3 of 3 has 7 bytes")
	require.NotContains(t, err.Error(), "hunter2")
	require.NotContains(t, err.Error(), "aHVudGVyMg")
}

func TestBlanksAroundTheCommasDoNotMatter(t *testing.T) {
	t.Parallel()
	s, err := ParseSecrets(" " + NewSecret() + " , " + NewSecret() + "\n")
	require.NoError(t, err)
	require.Len(t, s.keys, 2)
}

func TestPrintingSecretsDoesNotShowThem(t *testing.T) {
	t.Parallel()
	secret := NewSecret()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	require.NoError(t, err)
	config := struct{ WebhookSecrets Secrets }{secrets(t, secret)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(verb, config)
		require.NotContains(t, text, strings.TrimPrefix(secret, secretPrefix))
		require.NotContains(t, text, fmt.Sprintf("%d %d %d %d", key[0], key[1], key[2], key[3]))
		require.NotContains(t, text, string(key))
	}
}

func TestNewSecretsDiffer(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, NewSecret(), NewSecret())
}
