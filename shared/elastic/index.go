package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"

	"github.com/elastic/go-elasticsearch/v8/esapi"
)

// Definition is an index as the code wants it.
type Definition struct {
	Alias string // the only name that readers and writers use
	// Mapping is the mapping in JSON, with "dynamic": "strict": a field nobody planned is refused, not guessed.
	Mapping string
	// Refresh is how long a write may stay invisible to searches; "1s" when empty, "-1" for never.
	Refresh string
}

// Index is the one way to write. It writes only once it has seen that the index behind the alias is as defined.
type Index struct {
	client   *Client
	def      Definition
	mapping  any
	verified atomic.Bool
}

// Index makes a handle. It does not call the server.
func (c *Client) Index(def Definition) (*Index, error) {
	if def.Refresh == "" {
		// Said aloud even though it is the server's default: without it an index that nobody searched for 30 s stops
		// refreshing, and the next search waits.
		def.Refresh = "1s"
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(def.Mapping), &m); err != nil {
		return nil, fmt.Errorf("mapping of %s: %w", def.Alias, err)
	}
	if m["dynamic"] != "strict" {
		return nil, fmt.Errorf("mapping of %s: dynamic must be strict", def.Alias)
	}
	return &Index{client: c, def: def, mapping: m}, nil
}

// Bootstrap creates the index and its alias in one step when the alias does not exist, and then checks. Any number of
// processes may do it at once. An index with another mapping is left as it is: ErrMapping.
func (i *Index) Bootstrap(ctx context.Context) error {
	if err := i.Check(ctx); !errors.Is(err, ErrNoIndex) {
		return err
	}
	// A fixed name: with a generated one, two starters at once would put two indices behind the alias.
	if err := i.create(ctx, i.def.Alias+"-1"); err != nil {
		return err
	}
	return i.Check(ctx)
}

// create makes an index with its alias. One that exists already is no error: it may come from this very call, whose
// first answer was lost.
func (i *Index) create(ctx context.Context, name string) error {
	body := fmt.Appendf(nil, `{"settings": {"refresh_interval": %q, "auto_expand_replicas": "0-1"},
		"mappings": %s, "aliases": {%q: {}}}`, i.def.Refresh, i.def.Mapping, i.def.Alias)
	err := i.client.call(ctx, body, func(b io.Reader) esapi.Request {
		return esapi.IndicesCreateRequest{Index: name, Body: b}
	}, nil)
	if err != nil && !hasType(err, "resource_already_exists_exception") {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	return nil
}

// Check is nil when the index is there, has exactly the defined mapping, and can be served. It always asks the server,
// and so it is what readiness should call. ErrNoIndex, ErrMapping, ErrDown.
func (i *Index) Check(ctx context.Context) error {
	name, mapping, err := i.behindAlias(ctx)
	if err == nil && !reflect.DeepEqual(mapping, i.mapping) {
		err = fmt.Errorf("%w: mapping of %s", ErrMapping, name)
	}
	if err == nil {
		err = i.client.health(ctx, i.def.Alias)
	}
	i.verified.Store(err == nil)
	return err
}

// behindAlias is the name of the one index behind the alias, and its mapping as decoded JSON.
func (i *Index) behindAlias(ctx context.Context) (name string, mapping any, err error) {
	var found map[string]struct{ Mappings any }
	err = i.client.call(ctx, nil, func(io.Reader) esapi.Request {
		return esapi.IndicesGetMappingRequest{Index: []string{i.def.Alias}}
	}, &found)
	if err != nil {
		return "", nil, fmt.Errorf("looking behind the alias %s: %w", i.def.Alias, err)
	}
	if len(found) != 1 {
		return "", nil, fmt.Errorf("%w: alias %s leads to %d indices", ErrMapping, i.def.Alias, len(found))
	}
	for only, index := range found {
		name, mapping = only, index.Mappings
	}
	if name == i.def.Alias {
		return "", nil, fmt.Errorf("%w: %s is an index and not an alias", ErrMapping, name)
	}
	return name, mapping, nil
}

// ready stands before every write. After the first success it costs nothing; a write that then finds the index gone or
// changed is refused by the server and makes the next one look again.
func (i *Index) ready(ctx context.Context) error {
	if i.verified.Load() {
		return nil
	}
	return i.Check(ctx)
}

// Refresh makes all earlier writes visible to searches. It is for tests and rebuilds; readers wait for Definition.Refresh.
func (i *Index) Refresh(ctx context.Context) error {
	err := i.client.call(ctx, nil, func(io.Reader) esapi.Request {
		return esapi.IndicesRefreshRequest{Index: []string{i.def.Alias}}
	}, nil)
	if err != nil {
		return fmt.Errorf("refreshing %s: %w", i.def.Alias, err)
	}
	return nil
}
