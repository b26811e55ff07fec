package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/elastic/go-elasticsearch/v8/esapi"
)

// Item is one write of a bulk request; see Put.
type Item struct {
	ID      string
	Version int64
	Doc     any
}

// ItemResult is what became of an Item. Exactly one of the two is set; Err is of the classes that Put returns.
type ItemResult struct {
	Outcome Outcome
	Err     error
}

// Bulk writes all items in one request; keep it to a few thousand items and a few megabytes. The answer has one result
// per item, in the same order. An answer 200 can hold failed items: each is looked at, and those that may still pass
// (429, 5xx) are sent again alone, a few times.
func (i *Index) Bulk(ctx context.Context, items []Item) []ItemResult {
	results := make([]ItemResult, len(items))
	bodies := make([][]byte, len(items))
	var open []int // positions that still need an answer
	for n, item := range items {
		body, err := encode(item.ID, item.Version, item.Doc)
		if err != nil {
			results[n].Err = fmt.Errorf("writing to %s in bulk: %w", i.def.Alias, err)
			continue
		}
		bodies[n] = body
		open = append(open, n)
	}
	if len(open) == 0 {
		return results
	}
	if err := i.ready(ctx); err != nil {
		return failed(results, open, err)
	}
	check := sync.OnceValue(func() error { return i.Check(ctx) }) // one look serves all refused items
	var conflicts []int
	for attempt := 1; len(open) > 0; attempt++ {
		answers, err := i.sendBulk(ctx, items, bodies, open)
		if err != nil {
			failed(results, open, err)
			break
		}
		var again []int
		for k, answer := range answers {
			n := open[k]
			err := answer.refusal()
			switch {
			case err == nil:
				results[n] = ItemResult{Outcome: Applied}
			case err.Type == versionConflict:
				conflicts = append(conflicts, n)
			case err.worthRepeating() && attempt < i.client.cfg.Attempts:
				again = append(again, n)
			default:
				results[n].Err = fmt.Errorf("writing to %s in bulk: %w", i.def.Alias, i.blame(err.classify(), check))
			}
		}
		if len(again) > 0 && i.client.backoff(ctx, attempt) != nil {
			failed(results, again, fmt.Errorf("writing to %s in bulk: %w", i.def.Alias, ctx.Err()))
			break
		}
		open = again
	}
	i.settleConflicts(ctx, items, conflicts, results)
	return results
}

func failed(results []ItemResult, which []int, err error) []ItemResult {
	for _, n := range which {
		results[n] = ItemResult{Err: err}
	}
	return results
}

// itemAnswer is one element of a bulk answer.
type itemAnswer struct {
	Index struct {
		Status int `json:"status"`
		Error  struct {
			Type string `json:"type"`
		} `json:"error"`
	} `json:"index"`
}

func (a itemAnswer) refusal() *Error {
	if s := a.Index.Status; s >= 200 && s < 300 {
		return nil
	}
	return &Error{Status: a.Index.Status, Type: a.Index.Error.Type}
}

func (i *Index) sendBulk(ctx context.Context, items []Item, bodies [][]byte, which []int) ([]itemAnswer, error) {
	var body bytes.Buffer
	for _, n := range which {
		action, err := json.Marshal(map[string]any{"index": map[string]any{
			"_id": items[n].ID, "version": items[n].Version, "version_type": "external",
		}})
		if err != nil {
			return nil, fmt.Errorf("writing to %s in bulk: %w", i.def.Alias, err)
		}
		for _, line := range [][]byte{action, bodies[n]} {
			body.Write(line)
			body.WriteByte('\n')
		}
	}
	var answer struct{ Items []itemAnswer }
	err := i.client.call(ctx, body.Bytes(), func(b io.Reader) esapi.Request {
		return esapi.BulkRequest{
			Index: i.def.Alias, Body: b, RequireAlias: ptr(true), Timeout: i.client.cfg.Timeout / 2,
		}
	}, &answer)
	if err != nil {
		return nil, fmt.Errorf("writing to %s in bulk: %w", i.def.Alias, err)
	}
	if len(answer.Items) != len(which) {
		return nil, fmt.Errorf("writing to %s in bulk: %d answers for %d items", i.def.Alias, len(answer.Items), len(which))
	}
	return answer.Items, nil
}

func (i *Index) settleConflicts(ctx context.Context, items []Item, conflicts []int, results []ItemResult) {
	if len(conflicts) == 0 {
		return
	}
	ids := make([]string, len(conflicts))
	for k, n := range conflicts {
		ids[k] = items[n].ID
	}
	winners, err := i.MGet(ctx, ids)
	if err != nil {
		failed(results, conflicts, err)
		return
	}
	for _, n := range conflicts {
		results[n] = ItemResult{Outcome: settled(winners[items[n].ID].Version, items[n].Version)}
	}
}
