package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds what a client reads, in bytes: a page of facts is far below it.
const maxAnswer = 32 << 20

// Client calls the operations API of one process.
type Client struct {
	BaseURL string
	Token   string
	HTTP    *http.Client // nil means one with a 10 s limit per call
}

var defaultHTTP = &http.Client{Timeout: 10 * time.Second}

// StatusError is an answer that was not 2xx.
type StatusError struct {
	Status int
	Kind   string // names the problem; empty when the answer was none of ours
	Detail string
}

// NoOperation reports whether the process does not have the operation at all, as distinct from not having the thing
// that was asked for.
func NoOperation(err error) bool {
	var refused *StatusError
	return errors.As(err, &refused) && refused.Kind == noOperation
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, http.StatusText(e.Status), e.Detail)
}

// GetJSON reads path into out.
func (c Client) GetJSON(ctx context.Context, path string, query url.Values, out any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.do(ctx, http.MethodGet, path, nil, out)
}

// PostJSON sends in to path and reads the answer into out, when out is not nil.
func (c Client) PostJSON(ctx context.Context, path string, in, out any) error {
	return c.do(ctx, http.MethodPost, path, in, out)
}

func (c Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.BaseURL+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = defaultHTTP
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("calling %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer of %s: %w", path, err)
	case len(answer) > maxAnswer:
		return fmt.Errorf("the answer of %s is larger than %d bytes", path, maxAnswer)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		var p ProblemDetails
		_ = json.Unmarshal(answer, &p) // not every answer is a problem; the status says enough
		return &StatusError{Status: resp.StatusCode, Kind: strings.TrimPrefix(p.Type, problemURN), Detail: p.Detail}
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the answer of %s is not the expected JSON: %w", path, err)
	}
	return nil
}
