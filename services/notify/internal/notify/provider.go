package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/telemetry"
)

const (
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 64 << 10
	// maxRetryAfter bounds what the provider may ask for.
	maxRetryAfter = time.Hour
)

// provider speaks to the SMS provider. Nothing that it returns holds a phone number or an answer's text.
type provider struct {
	url     string
	timeout time.Duration // of one request
	client  *http.Client
}

func newProvider(baseURL string, timeout time.Duration, workers int, tracer trace.TracerProvider) *provider {
	connections := &http.Transport{MaxIdleConnsPerHost: workers, IdleConnTimeout: 20 * time.Second}
	return &provider{url: baseURL + "/sms", timeout: timeout, client: &http.Client{
		Transport: telemetry.Transport(tracer, connections, func(*http.Request) string { return "/sms" }),
		// A redirected POST would go to a place that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (p *provider) close() { p.client.CloseIdleConnections() }

// send asks the provider to deliver text to phone under the command's key, and says what is known afterwards.
func (p *provider) send(ctx context.Context, t token, key, phone, text string) verdict {
	defer t.done()
	content, err := json.Marshal(map[string]string{"to": phone, "text": text})
	if err != nil {
		return verdict{status: Failed, code: "not_encodable"}
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var left, stale atomic.Bool // set by the transport's goroutine
	body := bytes.NewReader(content)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// The headers are in the connection's buffer, nothing has left yet. Connecting may have taken long, and the process
		// may have been stopped meanwhile. A body shorter than announced makes the transport drop the buffer.
		WroteHeaders: func() {
			if time.Since(t.taken) > tokenLife {
				stale.Store(true)
				body.Reset(nil)
				return
			}
			left.Store(true)
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { t.done() }, // the process may take its next token
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, body)
	if err != nil {
		return verdict{status: Retry, code: "sms_url"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	// net/http repeats a POST with this header by itself when a kept connection breaks. The key would make that harmless,
	// but it would go past the rate limit; without GetBody it cannot.
	req.GetBody = nil
	resp, err := p.client.Do(req)
	switch {
	case err != nil && stale.Load():
		return verdict{notBegun: true}
	case err != nil && !left.Load() && ctx.Err() == nil:
		return verdict{status: Retry, code: "unreachable"} // no connection was made, so surely nothing was accepted
	case err != nil:
		return verdict{status: Unknown, code: "no_answer"}
	}
	defer func() { _ = resp.Body.Close() }()
	return judge(resp)
}

// judge reads an answer. A refusal of the caller (401, 404, ...) is a matter of configuration and not the message's
// fault, so it is tried again; the message's own fault is final.
func judge(resp *http.Response) verdict {
	code := fmt.Sprintf("http_%d", resp.StatusCode)
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		var answer struct {
			MessageID string `json:"message_id"`
		}
		err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer)
		if err != nil || answer.MessageID == "" || len(answer.MessageID) > 128 {
			return verdict{status: Unknown, code: "unreadable_answer"}
		}
		return verdict{status: Sent, messageID: answer.MessageID}
	case s >= 500:
		return verdict{status: Unknown, code: code, after: retryAfter(resp.Header), askNow: true}
	case s < 400, s == http.StatusUnauthorized, s == http.StatusForbidden, s == http.StatusNotFound, s == http.StatusMethodNotAllowed,
		s == http.StatusProxyAuthRequired, s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusTooManyRequests:
		return verdict{status: Retry, code: code, after: retryAfter(resp.Header)}
	default:
		return verdict{status: Failed, code: code}
	}
}

func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// ask finds out whether the provider has accepted a key: its message's id, or "" when it has not.
func (p *provider) ask(ctx context.Context, key string) (messageID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(p.timeout, lookUp))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"?key="+url.QueryEscape(key), nil)
	if err != nil {
		return "", err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		MessageID string `json:"message_id"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return "", nil
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("asking about a key: status %d", resp.StatusCode)
	case err != nil || answer.MessageID == "" || len(answer.MessageID) > 128:
		return "", errors.New("asking about a key: the answer names no message")
	}
	return answer.MessageID, nil
}
