package provider

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"example.com/paycast/shared/webhook"
)

// attemptTimeout bounds one attempt. A callback waits for one local transaction, so this is generous.
const attemptTimeout = 10 * time.Second

// Provider sends callbacks for one merchant to one payment service. Make it with New.
type Provider struct {
	url        string
	merchantID string
	secrets    webhook.Secrets
	foreign    webhook.Secrets // what BadSignature signs with
	client     *http.Client
	firstWait  time.Duration

	mu     sync.Mutex
	paidAt map[string]time.Time // by trade number
}

// New makes a provider that signs with the newest of secrets and calls paymentURL, such as http://127.0.0.1:8081.
func New(paymentURL, merchantID string, secrets webhook.Secrets) (*Provider, error) {
	foreign, err := webhook.ParseSecrets(webhook.NewSecret())
	if err != nil {
		return nil, err
	}
	return &Provider{
		url: strings.TrimRight(paymentURL, "/") + "/callbacks/payment", merchantID: merchantID, secrets: secrets, foreign: foreign,
		client:    &http.Client{Timeout: attemptTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: maxParallel}},
		firstWait: 200 * time.Millisecond,
		paidAt:    map[string]time.Time{},
	}, nil
}

// Close drops idle connections.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// Report is all that happened to one payment's callback.
type Report struct {
	TradeNo string `json:"trade_no"`
	// Body is what was signed and sent, byte for byte.
	Body string `json:"body"`
	// Accepted is how many copies got their 200 in the end.
	Accepted int       `json:"accepted"`
	Attempts []Attempt `json:"attempts"` // by copy, then by time
}

// Attempt is one request. Status 0 with an Error means that no answer was read: the other side may have acted.
type Attempt struct {
	Copy       int     `json:"copy"` // from 1
	WebhookID  string  `json:"webhook_id"`
	Status     int     `json:"status"`
	Answer     string  `json:"answer"` // the body, byte for byte
	Error      string  `json:"error,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// Pay reports a payment and returns when every copy was answered with 200 or given up. Reporting a trade again sends
// the same bytes under the same id, as long as the provider lives. The error is about the Payment or ctx; what the
// payment service answers is in the report.
func (p *Provider) Pay(ctx context.Context, pay Payment) (Report, error) {
	pay = pay.withDefaults()
	if err := pay.validate(); err != nil {
		return Report{}, err
	}
	c, err := newCallback(pay, p.merchantID, p.timeOf(pay.TradeNo))
	if err != nil {
		return Report{}, err
	}
	copies := make([][]Attempt, pay.Copies)
	var group errgroup.Group
	group.SetLimit(pay.Parallel)
	for n := range copies {
		group.Go(func() error {
			copies[n] = p.deliver(ctx, pay, n, c.copyOf(n, pay.Mode))
			return nil
		})
	}
	_ = group.Wait() // deliver has no error: all that happened is in its attempts
	report := Report{TradeNo: pay.TradeNo, Body: string(c.body)}
	for _, attempts := range copies {
		report.Attempts = append(report.Attempts, attempts...)
		if n := len(attempts); n > 0 && attempts[n-1].Status == http.StatusOK {
			report.Accepted++
		}
	}
	return report, ctx.Err()
}

func (p *Provider) timeOf(tradeNo string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.paidAt[tradeNo]
	if !known {
		at = time.Now().UTC().Truncate(time.Millisecond)
		p.paidAt[tradeNo] = at
	}
	return at
}

// deliver sends one copy until it is accepted, its attempts are used up, or ctx ends.
func (p *Provider) deliver(ctx context.Context, pay Payment, n int, c callback) (attempts []Attempt) {
	pause := backoff.ExponentialBackOff{
		InitialInterval: p.firstWait, Multiplier: 2, RandomizationFactor: 0.2, MaxInterval: 5 * time.Second,
	}
	if !sleep(ctx, time.Duration(pay.DelayMS)*time.Millisecond) {
		return nil
	}
	for {
		a := p.attempt(ctx, pay.Mode, len(attempts) == 0, c)
		a.Copy, a.WebhookID = n+1, c.id
		attempts = append(attempts, a)
		if a.Status == http.StatusOK || len(attempts) == pay.Attempts || !sleep(ctx, pause.NextBackOff()) {
			return attempts
		}
	}
}

// sleep reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
