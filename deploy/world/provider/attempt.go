package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// skew is how far Stale and Future sign beside the clock: twice what a receiver tolerates.
const skew = 10 * time.Minute

// maxAnswer bounds what is kept of an answer, in bytes.
const maxAnswer = 64 << 10

func (p *Provider) attempt(ctx context.Context, mode Mode, first bool, c callback) Attempt {
	begin := time.Now()
	var a Attempt
	req, err := p.request(ctx, mode, begin, c)
	switch {
	case err != nil:
	case mode == HangUp && first:
		err = hangUp(ctx, req)
	default:
		a.Status, a.Answer, err = p.send(req)
	}
	if err != nil {
		a.Error = err.Error()
	}
	a.DurationMS = float64(time.Since(begin).Microseconds()) / 1000
	return a
}

// request signs the body for this attempt: the time is new at each attempt, id and body are not.
func (p *Provider) request(ctx context.Context, mode Mode, at time.Time, c callback) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	secrets := p.secrets
	switch mode {
	case BadSignature:
		secrets = p.foreign
	case Stale:
		at = at.Add(-skew)
	case Future:
		at = at.Add(skew)
	}
	req.Header.Set("Content-Type", "application/json")
	return req, secrets.Sign(req.Header, c.id, at, c.body)
}

func (p *Provider) send(req *http.Request) (status int, answer string, err error) {
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, "", fmt.Errorf("reading the answer: %w", err) // half an answer is none
	}
	return resp.StatusCode, string(body), nil
}

var errHungUp = errors.New("hung up before the answer")

// hangUp sends the whole request on a connection of its own and closes that without reading. The server may see the
// end before, while or after it commits.
func hangUp(ctx context.Context, req *http.Request) error {
	address := req.URL.Host
	if req.URL.Port() == "" {
		address = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	dialer := net.Dialer{Timeout: attemptTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return errors.Join(errHungUp, req.Write(conn), conn.Close())
}
