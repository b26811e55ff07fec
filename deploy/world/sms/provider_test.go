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
	defer resp.Body.Close()
	require.Equal(b.t, http.StatusOK, resp.StatusCode)
}

func (b *bundle) post(key, body string) (*http.Response, string, error) {
	req, err := http.NewRequest(http.MethodPost, b.url+"/sms", strings.NewReader(body))
	require.NoError(b.t, err)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp, string(answer), err
}

func (b *bundle) send(key string) (*http.Response, string, error) {
	return b.post(key, `{"to": "+15550001", "text": "paid"}`)
}

func (b *bundle) ask(key string) (int, string) {
	resp, err := b.client.Get(b.url + "/sms?key=" + key)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, string(body)
}

func TestSameKeyGetsTheSameAnswerAndOneMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	_, first, err := b.send("k1")
	require.NoError(t, err)
	require.Contains(t, first, `"message_id":"sms_`)
	for range 3 {
		resp, again, err := b.send("k1")
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, resp.StatusCode)
		require.Equal(t, first, again)
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
			_, answer, err := b.send("k1")
			if err == nil {
				answers[i] = answer
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
	_, _, err := b.send("k1")
	require.NoError(t, err)
	resp, _, err := b.post("k1", `{"to": "+15550002", "text": "paid"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, resp.StatusCode)
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
		resp, _, err := b.post("k1", body)
		require.NoError(t, err)
		require.Equal(t, want, resp.StatusCode)
	}
	resp, _, err := b.send("")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Empty(t, b.provider.Messages())
}

func TestRefusingModesAcceptNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	for mode, want := range map[string]int{ModeError: 503, ModeReject: 422, ModeRateLimited: 429} {
		b.mode(Mode{Mode: mode, DelayMS: 1500})
		resp, _, err := b.send("k1")
		require.NoError(t, err)
		require.Equal(t, want, resp.StatusCode, mode)
		if mode == ModeRateLimited {
			require.Equal(t, "2", resp.Header.Get("Retry-After"), "milliseconds are rounded up to seconds")
		}
	}
	require.Empty(t, b.provider.Messages())
	status, _ := b.ask("k1")
	require.Equal(t, http.StatusNotFound, status)

	b.mode(Mode{Mode: ModeOK})
	_, _, err := b.send("k1")
	require.NoError(t, err)
	require.Equal(t, 4, b.provider.Messages()[0].Attempts, "refused attempts count too")
}

func TestAcceptingModesAcceptThoughTheSenderCannotKnow(t *testing.T) {
	t.Parallel()
	b := setup(t, "")

	b.mode(Mode{Mode: ModeAcceptThenError})
	resp, _, err := b.send("error")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)

	b.mode(Mode{Mode: ModeAcceptThenReset})
	_, _, err = b.send("reset")
	require.ErrorIs(t, err, syscall.ECONNRESET)

	b.mode(Mode{Mode: ModeAcceptThenHang, DelayMS: 50})
	_, _, err = b.send("hang")
	require.ErrorIs(t, err, io.EOF)

	for _, key := range []string{"error", "reset", "hang"} {
		status, _ := b.ask(key)
		require.Equal(t, http.StatusOK, status, "%s was accepted", key)
	}
	b.mode(Mode{Mode: ModeOK})
	for _, key := range []string{"error", "reset", "hang"} {
		resp, _, err := b.send(key)
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, resp.StatusCode)
	}
	require.Len(t, b.provider.Messages(), 3)
}

func TestSlowModeAnswersLateAndAcceptsNothingWhenTheSenderLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	b.mode(Mode{Mode: ModeSlow, DelayMS: 100})
	begin := time.Now()
	_, _, err := b.send("patient")
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begin), 100*time.Millisecond)

	b.mode(Mode{Mode: ModeSlow, DelayMS: 10_000})
	b.client.Timeout = 50 * time.Millisecond
	_, _, err = b.send("hasty")
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
		_, _, err := b.send(fmt.Sprint(i))
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
	_, answer, err := first.send("k1")
	require.NoError(t, err)
	_, _, err = first.send("k1")
	require.NoError(t, err)
	_, _, err = first.send("k2")
	require.NoError(t, err)
	before := first.provider.Messages()

	// What a kill in the middle of a write leaves behind. The first provider is not closed: nothing was flushed.
	file, err := os.OpenFile(filepath.Join(dir, "sms.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"key":"k3","mess`)
	require.NoError(t, errors.Join(err, file.Close()))

	second := setup(t, dir)
	require.Equal(t, before, second.provider.Messages())
	_, again, err := second.send("k1")
	require.NoError(t, err)
	require.Equal(t, answer, again)
	_, _, err = second.send("k3")
	require.NoError(t, err)

	third := setup(t, dir)
	require.Equal(t, second.provider.Messages(), third.provider.Messages())
	require.Equal(t, 3, third.provider.Messages()[0].Attempts)
}
