package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var now = time.Unix(1_800_000_000, 0)

func secrets(t require.TestingT, list ...string) Secrets {
	s, err := ParseSecrets(strings.Join(list, ","))
	require.NoError(t, err)
	return s
}

func signedHeaders(t require.TestingT, s Secrets, at time.Time, body string) http.Header {
	h := http.Header{}
	require.NoError(t, s.Sign(h, "msg_1", at, []byte(body)))
	return h
}

func TestBodyVerifiesHoweverOddlyItIsWritten(t *testing.T) {
	t.Parallel()
	s := secrets(t, NewSecret())
	for _, body := range []string{
		`{"b":1,"a":2}`, "{ \"a\" :\t1 }", "{\r\n\"a\":1\r\n}\r\n", `{"a":1}` + "\n", `{"a":"\u00e9"}`, `{"a":"é"}`, `{"a":1.0}`, `{"a":1e0}`, "", "\x00\xff", "a.b.c",
	} {
		require.NoError(t, s.verifyAt(now, signedHeaders(t, s, now, body), []byte(body)), "%q", body)
	}
}

func TestOneChangedBlankIsRefused(t *testing.T) {
	t.Parallel()
	s := secrets(t, NewSecret())
	h := signedHeaders(t, s, now, `{"a": 1}`)
	require.Equal(t, RefusedSignature, s.verifyAt(now, h, []byte(`{"a":1}`)))
	require.Equal(t, RefusedSignature, s.verifyAt(now, h, []byte("{\"a\":\t1}")))
}

func TestVerifyUsesTheRealClock(t *testing.T) {
	t.Parallel()
	s := secrets(t, NewSecret())
	require.NoError(t, s.Verify(signedHeaders(t, s, time.Now(), "x"), []byte("x")))
	require.Equal(t, RefusedTooOld, s.Verify(signedHeaders(t, s, time.Now().Add(-Tolerance-2*time.Second), "x"), []byte("x")))
	require.Equal(t, RefusedTooNew, s.Verify(signedHeaders(t, s, time.Now().Add(Tolerance+2*time.Second), "x"), []byte("x")))
}

func TestTimestampIsToleratedUpToTheBoundInBothDirections(t *testing.T) {
	t.Parallel()
	s := secrets(t, NewSecret())
	for at, want := range map[time.Time]error{
		now.Add(-Tolerance):               nil,
		now.Add(-Tolerance - time.Second): RefusedTooOld,
		now.Add(Tolerance):                nil,
		now.Add(Tolerance + time.Second):  RefusedTooNew,
	} {
		require.Equal(t, want, s.verifyAt(now, signedHeaders(t, s, at, "body"), []byte("body")), "%s", at.Sub(now))
	}
}

func TestForgedStaleCallbackIsRefusedForItsSignature(t *testing.T) {
	t.Parallel()
	h := signedHeaders(t, secrets(t, NewSecret()), now.Add(-time.Hour), "body")
	require.Equal(t, RefusedSignature, secrets(t, NewSecret()).verifyAt(now, h, []byte("body")))
}

func TestBothSecretsVerifyDuringRotationAndTheNewestSigns(t *testing.T) {
	t.Parallel()
	before, after, foreign := NewSecret(), NewSecret(), NewSecret()
	rotating := secrets(t, after, before)
	for _, signer := range []string{before, after} {
		require.NoError(t, rotating.verifyAt(now, signedHeaders(t, secrets(t, signer), now, "b"), []byte("b")))
	}
	require.Equal(t, RefusedSignature, rotating.verifyAt(now, signedHeaders(t, secrets(t, foreign), now, "b"), []byte("b")))

	h := signedHeaders(t, rotating, now, "b")
	require.NoError(t, secrets(t, after).verifyAt(now, h, []byte("b")))
	require.Equal(t, RefusedSignature, secrets(t, before).verifyAt(now, h, []byte("b")))
}

// A provider in the middle of its own rotation puts several signatures into the one header.
func TestOneOfSeveralSignaturesInTheHeaderIsEnough(t *testing.T) {
	t.Parallel()
	s := secrets(t, NewSecret())
	h := signedHeaders(t, s, now, "b")
	other := signedHeaders(t, secrets(t, NewSecret()), now, "b")
	h.Set(HeaderSignature, other.Get(HeaderSignature)+" v1a,AAAA "+h.Get(HeaderSignature))
	require.NoError(t, s.verifyAt(now, h, []byte("b")))
}

func TestBrokenHeadersAreRefusedAlike(t *testing.T) {
	t.Parallel()
	s := secrets(t, NewSecret())
	for name, spoil := range map[string]func(http.Header){
		"no id":                  func(h http.Header) { h.Del(HeaderID) },
		"no timestamp":           func(h http.Header) { h.Del(HeaderTimestamp) },
		"no signature":           func(h http.Header) { h.Del(HeaderSignature) },
		"empty signature":        func(h http.Header) { h.Set(HeaderSignature, "") },
		"two ids":                func(h http.Header) { h.Add(HeaderID, h.Get(HeaderID)) },
		"two timestamps":         func(h http.Header) { h.Add(HeaderTimestamp, h.Get(HeaderTimestamp)) },
		"two signatures":         func(h http.Header) { h.Add(HeaderSignature, h.Get(HeaderSignature)) },
		"timestamp is no number": func(h http.Header) { h.Set(HeaderTimestamp, "yesterday") },
		"timestamp with a plus":  func(h http.Header) { h.Set(HeaderTimestamp, "+"+h.Get(HeaderTimestamp)) },
		"timestamp with a zero":  func(h http.Header) { h.Set(HeaderTimestamp, "0"+h.Get(HeaderTimestamp)) },
		"timestamp overflows":    func(h http.Header) { h.Set(HeaderTimestamp, "99999999999999999999") },
		"id with a full stop":    func(h http.Header) { h.Set(HeaderID, "msg.1") },
		"id with a line break":   func(h http.Header) { h.Set(HeaderID, "msg\n1") },
		"endless id":             func(h http.Header) { h.Set(HeaderID, strings.Repeat("m", maxIDBytes+1)) },
	} {
		h := signedHeaders(t, s, now, "b")
		spoil(h)
		require.Equal(t, RefusedHeaders, s.verifyAt(now, h, []byte("b")), name)
	}
}

func TestWrongSignaturesAreRefusedAlike(t *testing.T) {
	t.Parallel()
	s := secrets(t, NewSecret())
	good := signedHeaders(t, s, now, "b").Get(HeaderSignature)
	for name, signature := range map[string]string{
		"made with an empty key": handMade(nil, "b"),
		"unknown algorithm":      strings.Replace(good, "v1,", "v2,", 1),
		"asymmetric":             strings.Replace(good, "v1,", "v1a,", 1),
		"no algorithm":           strings.TrimPrefix(good, "v1,"),
		"cut short":              good[:len(good)-4],
		"too long":               good + "AAAA",
		"other base64 alphabet":  "v1," + strings.Repeat("_", 43) + "=",
		"not base64":             "v1,%%%",
		"only the algorithm":     "v1,",
	} {
		h := signedHeaders(t, s, now, "b")
		h.Set(HeaderSignature, signature)
		require.Equal(t, RefusedSignature, s.verifyAt(now, h, []byte("b")), name)
	}
}

// The scheme written out by hand: what the library computes is what the standard says.
func handMade(key []byte, body string) string {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "msg_1.%d.%s", now.Unix(), body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestSignatureIsTheOneTheStandardDescribes(t *testing.T) {
	t.Parallel()
	secret := NewSecret()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	require.NoError(t, err)
	require.Equal(t, handMade(key, "b"), signedHeaders(t, secrets(t, secret), now, "b").Get(HeaderSignature))
}

func TestNoSecretsVerifyAndSignNothing(t *testing.T) {
	t.Parallel()
	h := signedHeaders(t, secrets(t, NewSecret()), now, "b")
	h.Set(HeaderSignature, handMade(nil, "b"))
	require.Equal(t, RefusedSignature, Secrets{}.verifyAt(now, h, []byte("b")))
	require.Error(t, Secrets{}.Sign(http.Header{}, "msg_1", now, nil))
}

func TestSignRefusesAnIDThatVerifyWouldRefuse(t *testing.T) {
	t.Parallel()
	s := secrets(t, NewSecret())
	for _, id := range []string{"", "a.b", "a b", "é", strings.Repeat("m", maxIDBytes+1)} {
		require.Error(t, s.Sign(http.Header{}, id, now, nil), "%q", id)
	}
}

func TestRefusalsTellNothingOfTheCallback(t *testing.T) {
	t.Parallel()
	for _, r := range Reasons() {
		require.Equal(t, "webhook refused: "+string(r), r.Error())
	}
}

func TestPropertySignedVerifiesAndAnySingleBitChangeDoesNot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := secrets(t, NewSecret())
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		id := rapid.StringMatching(`[!-\-/-~]{1,128}`).Draw(t, "id")
		at := now.Add(time.Duration(rapid.IntRange(-300, 300).Draw(t, "age")) * time.Second)
		h := http.Header{}
		require.NoError(t, s.Sign(h, id, at, body))
		require.NoError(t, s.verifyAt(now, h, body))

		part := rapid.SampledFrom([]string{"body", HeaderID, HeaderTimestamp, HeaderSignature}).Draw(t, "part")
		if part == "body" {
			if len(body) > 0 {
				require.Error(t, s.verifyAt(now, h, flip(t, body)))
			}
			return
		}
		h.Set(part, string(flip(t, []byte(h.Get(part)))))
		require.Error(t, s.verifyAt(now, h, body))
	})
}

func flip(t *rapid.T, b []byte) []byte {
	b = append([]byte{}, b...)
	bit := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
	b[bit/8] ^= 1 << (bit % 8)
	return b
}

// Whatever arrives: no panic, the same answer twice, and never yes to what was not signed.
func FuzzVerify(f *testing.F) {
	s := secrets(f, NewSecret())
	good := signedHeaders(f, s, now, "body")
	f.Add(good.Get(HeaderID), good.Get(HeaderTimestamp), good.Get(HeaderSignature), []byte("body"))
	f.Add("msg.1", "+0", "v1,v1,v1", []byte{})
	f.Add("", "-9223372036854775808", ", ,v1,\x00", []byte("\xff"))
	f.Fuzz(func(t *testing.T, id, at, signature string, body []byte) {
		h := http.Header{}
		h.Set(HeaderID, id)
		h.Set(HeaderTimestamp, at)
		h.Set(HeaderSignature, signature)
		err := s.verifyAt(now, h, body)
		require.Equal(t, err, s.verifyAt(now, h, body))
		if err != nil {
			require.Contains(t, Reasons(), err)
			return
		}
		require.Equal(t, "msg_1 1800000000 body", fmt.Sprintf("%s %s %s", id, at, body))
	})
}
