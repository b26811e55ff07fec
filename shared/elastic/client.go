package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v8/esapi"
	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/telemetry"
)

// Config says where the server is and how long a call may take. A zero value takes the default.
type Config struct {
	URL      string               // http or https, host and port; may carry user:password; no path
	Timeout  time.Duration        // of one attempt, from dialling to the last byte; default 3 s
	Attempts int                  // of one call, the first included; default 3
	Backoff  time.Duration        // longest wait before the second attempt, doubled for each further one; default 200 ms
	Tracer   trace.TracerProvider // makes a span of every attempt that is part of a trace; nil: none
}

// Client is safe for use by many goroutines. A call ends within Attempts × (Timeout + backoff), whatever the server does.
type Client struct {
	cfg       Config
	transport *elastictransport.Client
	http      *http.Transport
}

// New prepares a client. It does not connect: a service can start before Elasticsearch does.
func New(cfg Config) (*Client, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 3 * time.Second
	}
	if cfg.Attempts == 0 {
		cfg.Attempts = 3
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 200 * time.Millisecond
	}
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		// The value may hold a password, and so may url.Parse's error.
		return nil, errors.New("elasticsearch URL must be http(s)://[user:password@]host:port")
	}
	u.Path = ""
	tr := &http.Transport{
		DialContext: (&net.Dialer{Timeout: cfg.Timeout}).DialContext,
		// A stopped server still accepts connections; without these a call would wait for ever.
		TLSHandshakeTimeout:   cfg.Timeout,
		ResponseHeaderTimeout: cfg.Timeout,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   8,
	}
	et, err := elastictransport.NewClient(
		elastictransport.WithURLs(u),
		elastictransport.WithTransport(telemetry.Transport(cfg.Tracer, tr, endpoint)),
		elastictransport.WithDisableRetry(), // its retries know neither our classes nor a deadline; ours are in call
	)
	if err != nil {
		return nil, fmt.Errorf("preparing the elasticsearch transport: %w", err)
	}
	return &Client{cfg: cfg, transport: et, http: tr}, nil
}

// endpoint is what a request asks for, such as _doc or _search: paths hold ids and names of indices.
func endpoint(r *http.Request) string {
	for part := range strings.SplitSeq(r.URL.Path, "/") {
		if strings.HasPrefix(part, "_") {
			return part
		}
	}
	return "index"
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Health is nil when the cluster answers and can serve every index (status yellow or green).
func (c *Client) Health(ctx context.Context) error {
	return c.health(ctx)
}

func (c *Client) health(ctx context.Context, index ...string) error {
	err := c.call(ctx, nil, func(io.Reader) esapi.Request {
		return esapi.ClusterHealthRequest{Index: index, WaitForStatus: "yellow", Timeout: c.cfg.Timeout / 2}
	}, nil)
	if err != nil {
		return fmt.Errorf("checking elasticsearch's health: %w", err)
	}
	return nil
}

// call sends a request until an attempt is answered or there is no point in another, and decodes a 2xx answer into out.
// Every attempt gets a request of its own, because a body is read only once.
func (c *Client) call(ctx context.Context, body []byte, build func(body io.Reader) esapi.Request, out any) error {
	for attempt := 1; ; attempt++ {
		err := c.attempt(ctx, build(bytes.NewReader(body)), out)
		if err == nil || attempt == c.cfg.Attempts || !repeatable(err) {
			return err
		}
		if c.backoff(ctx, attempt) != nil {
			return unanswered(ctx, err)
		}
	}
}

func (c *Client) attempt(ctx context.Context, req esapi.Request, out any) error {
	bounded, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	res, err := req.Do(bounded, c.transport)
	if err != nil {
		return unanswered(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return unanswered(ctx, err)
	}
	if res.Header.Get("X-Elastic-Product") != "Elasticsearch" {
		// A proxy's 404 or 400 must not be read as Elasticsearch's word on an index or a document.
		return fmt.Errorf("%w: status %d came from something else", ErrDown, res.StatusCode)
	}
	if res.IsError() {
		return refusal(res.StatusCode, answer).classify()
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("an answer of elasticsearch cannot be read (%T)", err)
	}
	return nil
}

// unanswered is ErrDown, unless the caller gave up: a shutdown says nothing about the server.
func unanswered(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("calling elasticsearch: %w", ctx.Err())
	}
	if Down(err) {
		return err // an attempt has said so already
	}
	return fmt.Errorf("%w: %w", ErrDown, err)
}

func repeatable(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.worthRepeating()
	}
	return errors.Is(err, ErrDown)
}

// refusal reads an error answer. Most carry an object with a type; a few, like that of a missing route, a string.
func refusal(status int, answer []byte) *Error {
	var body struct {
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(answer, &body) // no type is an answer too
	return &Error{Status: status, Type: body.Error.Type}
}

// backoff waits with full jitter, so that many clients do not come back at once.
func (c *Client) backoff(ctx context.Context, attempt int) error {
	timer := time.NewTimer(rand.N(c.cfg.Backoff << (attempt - 1)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
