package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/elastic/go-elasticsearch/v8/esapi"
)

// Rebuild puts a newly filled index behind the alias, while readers and writers go on. fill writes every document of
// the source of truth, with its version; it is called twice and must read the source anew each time.
//
//	create the next index, behind alias-building ▶ fill it ▶ move the alias, in one step ▶ fill again ▶ drop the old one
//
// The second fill brings what was written to the old index during the first: without it those writes would be lost at
// the move. Versions make both harmless: neither can replace something newer. Readers see the old index until the move
// and the full new one after it. Killed anywhere, Rebuild can be run again.
func (i *Index) Rebuild(ctx context.Context, fill func(ctx context.Context, target *Index) error) error {
	old, _, err := i.behindAlias(ctx)
	if err != nil {
		return err
	}
	next, err := successor(i.def.Alias, old)
	if err != nil {
		return err
	}
	building, err := i.client.Index(Definition{Alias: i.def.Alias + "-building", Mapping: i.def.Mapping, Refresh: i.def.Refresh})
	if err != nil {
		return err
	}
	if err := building.startOver(ctx, next); err != nil {
		return err
	}
	if err := fill(ctx, building); err != nil {
		return fmt.Errorf("filling %s: %w", next, err)
	}
	if err := building.Refresh(ctx); err != nil { // or the first readers would find it empty
		return err
	}
	if err := i.move(ctx, old, next, building.def.Alias); err != nil {
		return err
	}
	if err := i.Check(ctx); err != nil {
		return err
	}
	if err := fill(ctx, i); err != nil {
		return fmt.Errorf("filling %s after the move: %w", next, err)
	}
	return i.client.drop(ctx, old)
}

// successor numbers the indices of an alias: orders-1, orders-2, ...
func successor(alias, old string) (string, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(old, alias+"-"))
	if err != nil {
		return "", fmt.Errorf("%w: the name %s is not %s- and a number", ErrMapping, old, alias)
	}
	return fmt.Sprintf("%s-%d", alias, n+1), nil
}

// startOver removes what a killed rebuild left: it may have been filled with another mapping or from an older source.
func (i *Index) startOver(ctx context.Context, name string) error {
	if err := i.client.drop(ctx, name); err != nil {
		return err
	}
	return i.create(ctx, name)
}

// move is one cluster state update: there is no moment at which the alias leads nowhere or to both.
func (i *Index) move(ctx context.Context, from, to, building string) error {
	// Without must_exist a removal that finds nothing is skipped with a 200, and the alias would lead to two indices.
	remove := func(index, alias string) map[string]any {
		return map[string]any{"remove": map[string]any{"index": index, "alias": alias, "must_exist": true}}
	}
	body, err := json.Marshal(map[string]any{"actions": []any{
		remove(from, i.def.Alias),
		remove(to, building),
		map[string]any{"add": map[string]string{"index": to, "alias": i.def.Alias}},
	}})
	if err == nil {
		err = i.client.call(ctx, body, func(b io.Reader) esapi.Request {
			return esapi.IndicesUpdateAliasesRequest{Body: b}
		}, nil)
	}
	if err == nil {
		return nil
	}
	// Sent twice because the first answer was lost, it finds nothing left to remove: look at what came of it.
	if now, _, lookErr := i.behindAlias(ctx); lookErr == nil && now == to {
		return nil
	}
	return fmt.Errorf("moving the alias %s to %s: %w", i.def.Alias, to, err)
}

// drop removes an index; one that is not there is fine.
func (c *Client) drop(ctx context.Context, name string) error {
	err := c.call(ctx, nil, func(io.Reader) esapi.Request {
		return esapi.IndicesDeleteRequest{Index: []string{name}}
	}, nil)
	if err != nil && !hasStatus(err, 404) {
		return fmt.Errorf("dropping %s: %w", name, err)
	}
	return nil
}
