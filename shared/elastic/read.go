package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/elastic/go-elasticsearch/v8/esapi"
)

// Document is what the index holds under an id: the bytes of the last applied write, and its version.
type Document struct {
	ID      string          `json:"_id"`
	Version int64           `json:"_version"`
	Source  json.RawMessage `json:"_source"`
}

// found is a Document in an answer.
type found struct {
	Document
	Found bool
	Error *struct{ Type string }
}

// Get reads one document as it is now, before any refresh. false: there is none.
func (i *Index) Get(ctx context.Context, id string) (Document, bool, error) {
	var doc found
	err := i.client.call(ctx, nil, func(io.Reader) esapi.Request {
		return esapi.GetRequest{Index: i.def.Alias, DocumentID: url.PathEscape(id)}
	}, &doc)
	if hasStatus(err, 404) && !Down(err) {
		return Document{}, false, nil
	}
	if err != nil {
		return Document{}, false, fmt.Errorf("reading a document of %s: %w", i.def.Alias, err)
	}
	return doc.Document, true, nil
}

// MGet reads many documents as they are now, before any refresh. Those that do not exist are not in the answer.
func (i *Index) MGet(ctx context.Context, ids []string) (map[string]Document, error) {
	docs := make(map[string]Document, len(ids))
	if len(ids) == 0 {
		return docs, nil // the server calls that an error
	}
	body, err := json.Marshal(map[string]any{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("reading documents of %s: %w", i.def.Alias, err)
	}
	var answer struct{ Docs []found }
	err = i.client.call(ctx, body, func(b io.Reader) esapi.Request {
		return esapi.MgetRequest{Index: i.def.Alias, Body: b}
	}, &answer)
	if err != nil {
		return nil, fmt.Errorf("reading documents of %s: %w", i.def.Alias, err)
	}
	for _, d := range answer.Docs {
		if d.Error != nil { // 200, and still no answer: a missing index comes back like this
			e := &Error{Status: 404, Type: d.Error.Type}
			return nil, fmt.Errorf("reading documents of %s: %w", i.def.Alias, e.classify())
		}
		if d.Found {
			docs[d.ID] = d.Document
		}
	}
	return docs, nil
}
