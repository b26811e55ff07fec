package sms

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bundle struct {
	t        *testing.T
	provider *Provider
	url      string
	client   *http.Client
}

func setup(t *testing.T, dir string) *bundle {
	p, err := Open(dir)
	require.NoError(t, err)
	server := httptest.NewServer(p)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		require.NoError(t, p.Close())
	})
	return &bundle{t: t, provider: p, url: server.URL, client: client}
}

func (b *bundle) mode(m Mode) {
	b.t.Helper()
	body, err := json.Marshal(m)
	require.NoError(b.t, err)
	req, err := http.NewRequest(http.MethodPut, b.url+"/mode", bytes.NewReader(body))
	require.NoError(b.t, err)
	resp, err := b.client.Do(req)
	require.NoError(b.t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(b.t, http.StatusOK, resp.StatusCode)
}

// reply is an answer whose body has been read.
type reply struct {
	status int
	header http.Header
	body   string
}

func (b *bundle) post(key, body string) (reply, error) {
	req, err := http.NewRequest(http.MethodPost, b.url+"/sms", strings.NewReader(body))
	require.NoError(b.t, err)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(answer)}, err
}

func (b *bundle) send(key string) (reply, error) {
	return b.post(key, `{"to": "+15550001", "text": "paid"}`)
}

func (b *bundle) ask(key string) (int, string) {
	resp, err := b.client.Get(b.url + "/sms?key=" + key)
	require.NoError(b.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, string(body)
}

func TestSameKeyGetsTheSameAnswerAndOneMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	first, err := b.send("k1")
	require.NoError(t, err)
	require.Contains(t, first.body, `"message_id":"sms_`)
	for range 3 {
		again, err := b.send("k1")
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, again.status)
		require.Equal(t, first.body, again.body)
	}
	require.Len(t, b.provider.Messages(), 1)
	require.Equal(t, 4, b.provider.Messages()[0].Attempts)
	status, answer := b.ask("k1")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, answer, b.provider.Messages()[0].MessageID)
	status, _ = b.ask("k2")
	require.Equal(t, http.StatusNotFound, status)
}

func TestManyCopiesAtOnceAreOneMessageAndAllAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, t.TempDir())
	var wg sync.WaitGroup
	answers := make([]string, 30)
	for i := range answers {
		wg.Go(func() {
			if answer, err := b.send("k1"); err == nil {
				answers[i] = answer.body
			}
		})
	}
	wg.Wait()
	require.Len(t, b.provider.Messages(), 1)
	require.Equal(t, len(answers), b.provider.Messages()[0].Attempts)
	for _, answer := range answers {
		require.Equal(t, answers[0], answer)
	}
}

func TestKeyOfAnotherMessageIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	_, err := b.send("k1")
	require.NoError(t, err)
	resp, err := b.post("k1", `{"to": "+15550002", "text": "paid"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, resp.status)
	require.Len(t, b.provider.Messages(), 1)
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	for body, want := range map[string]int{
		"":             http.StatusBadRequest,
		"{":            http.StatusBadRequest,
		`{"to": "+1"}`: http.StatusBadRequest,
		`{"to": "+1", "text": "` + strings.Repeat("x", maxBody) + `"}`: http.StatusRequestEntityTooLarge,
	} {
		resp, err := b.post("k1", body)
		require.NoError(t, err)
		require.Equal(t, want, resp.status)
	}
	resp, err := b.send("")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, resp.status)
	require.Empty(t, b.provider.Messages())
}

func TestRefusingModesAcceptNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	for mode, want := range map[string]int{ModeError: 503, ModeReject: 422, ModeRateLimited: 429} {
		b.mode(Mode{Mode: mode, DelayMS: 1500})
		resp, err := b.send("k1")
		require.NoError(t, err)
		require.Equal(t, want, resp.status, mode)
		if mode == ModeRateLimited {
			require.Equal(t, "2", resp.header.Get("Retry-After"), "milliseconds are rounded up to seconds")
		}
	}
	require.Empty(t, b.provider.Messages())
	status, _ := b.ask("k1")
	require.Equal(t, http.StatusNotFound, status)

	b.mode(Mode{Mode: ModeOK})
	_, err := b.send("k1")
	require.NoError(t, err)
	require.Equal(t, 4, b.provider.Messages()[0].Attempts, "refused attempts count too")
}

func TestAcceptingModesAcceptThoughTheSenderCannotKnow(t *testing.T) {
	t.Parallel()
	b := setup(t, "")

	b.mode(Mode{Mode: ModeAcceptThenError})
	resp, err := b.send("error")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.status)

	b.mode(Mode{Mode: ModeAcceptThenReset})
	_, err = b.send("reset")
	require.ErrorIs(t, err, syscall.ECONNRESET)

	b.mode(Mode{Mode: ModeAcceptThenHang, DelayMS: 50})
	_, err = b.send("hang")
	require.ErrorIs(t, err, io.EOF)

	for _, key := range []string{"error", "reset", "hang"} {
		status, _ := b.ask(key)
		require.Equal(t, http.StatusOK, status, "%s was accepted", key)
	}
	b.mode(Mode{Mode: ModeOK})
	for _, key := range []string{"error", "reset", "hang"} {
		resp, err := b.send(key)
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, resp.status)
	}
	require.Len(t, b.provider.Messages(), 3)
}

func TestSlowModeAnswersLateAndAcceptsNothingWhenTheSenderLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.mode(Mode{Mode: ModeSlow, DelayMS: 100})
	begin := time.Now()
	_, err := b.send("patient")
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begin), 100*time.Millisecond)

	b.mode(Mode{Mode: ModeSlow, DelayMS: 10_000})
	b.client.Timeout = 50 * time.Millisecond
	_, err = b.send("hasty")
	require.Error(t, err)
	require.Len(t, b.provider.Messages(), 1)
}

func TestPercentageIsSpreadEvenly(t *testing.T) {
	t.Parallel()
	for percent, want := range map[int]int{0: 100, 1: 1, 30: 30, 100: 100} {
		hits := 0
		for n := 1; n <= 100; n++ {
			if (Mode{Mode: ModeError, Percent: percent}).hits(n) {
				hits++
			}
		}
		require.Equal(t, want, hits)
	}
	b := setup(t, "")
	b.mode(Mode{Mode: ModeError, Percent: 50})
	for i := range 10 {
		_, err := b.send(fmt.Sprint(i))
		require.NoError(t, err)
	}
	require.Len(t, b.provider.Messages(), 5)
}

func TestUnknownModesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	for _, m := range []Mode{{Mode: "broken"}, {Mode: ModeOK, Percent: 101}, {Mode: ModeSlow, DelayMS: -1}, {Mode: ModeSlow, DelayMS: maxDelayMS + 1}} {
		require.Error(t, b.provider.SetMode(m))
	}
	require.Equal(t, Mode{Mode: ModeOK}, b.provider.current())
}

func TestMessagesSurviveAKilledProcessAndALineCutShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := setup(t, dir)
	answer, err := first.send("k1")
	require.NoError(t, err)
	_, err = first.send("k1")
	require.NoError(t, err)
	_, err = first.send("k2")
	require.NoError(t, err)
	before := first.provider.Messages()

	// What a kill in the middle of a write leaves behind. The first provider is not closed: nothing was flushed.
	file, err := os.OpenFile(filepath.Join(dir, "sms.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"key":"k3","mess`)
	require.NoError(t, errors.Join(err, file.Close()))

	second := setup(t, dir)
	require.Equal(t, before, second.provider.Messages())
	again, err := second.send("k1")
	require.NoError(t, err)
	require.Equal(t, answer.body, again.body)
	_, err = second.send("k3")
	require.NoError(t, err)

	third := setup(t, dir)
	require.Equal(t, second.provider.Messages(), third.provider.Messages())
	require.Equal(t, 3, third.provider.Messages()[0].Attempts)
}
