package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/elastic/go-elasticsearch/v8/esapi"
)

// Outcome is what became of a versioned write. All three mean that nothing is left to do.
type Outcome int

const (
	Applied Outcome = iota + 1 // the document now has this version
	Same                       // it had this very version already: an earlier write of it, whose answer was lost
	Stale                      // it has a newer version, and keeps it
)

func (o Outcome) String() string {
	return [...]string{"none", "applied", "same", "stale"}[o]
}

// maxID is the server's limit, in bytes. It is checked here because one longer id fails a whole bulk request.
const maxID = 512

// Put writes the whole document as of this version, which must be the version of the thing it describes (never a clock
// or an offset, which start again). Errors: ErrDocument, those for which Down is true, or something that may pass.
func (i *Index) Put(ctx context.Context, id string, version int64, doc any) (Outcome, error) {
	body, err := encode(id, version, doc)
	if err != nil {
		return 0, fmt.Errorf("writing a document to %s: %w", i.def.Alias, err)
	}
	if err := i.ready(ctx); err != nil {
		return 0, err
	}
	err = i.client.call(ctx, body, func(b io.Reader) esapi.Request {
		return esapi.IndexRequest{
			Index: i.def.Alias, DocumentID: url.PathEscape(id), Body: b,
			Version: ptr(int(version)), VersionType: "external", RequireAlias: ptr(true),
			Timeout: i.client.cfg.Timeout / 2, // for a missing shard; the default is a minute
		}
	}, nil)
	if err == nil {
		return Applied, nil
	}
	if hasType(err, versionConflict) {
		return i.conflict(ctx, id, version)
	}
	return 0, fmt.Errorf("writing a document to %s: %w", i.def.Alias, i.blame(err, func() error { return i.Check(ctx) }))
}

// encode checks what the server would answer with a refusal of the whole request.
func encode(id string, version int64, doc any) ([]byte, error) {
	if id == "" || len(id) > maxID || id == "." || id == ".." {
		return nil, fmt.Errorf("%w: an id has 1 to %d bytes", ErrDocument, maxID)
	}
	if version < 1 {
		return nil, fmt.Errorf("%w: a version is 1 or more", ErrDocument)
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("%w: it is not JSON (%T)", ErrDocument, err)
	}
	return body, nil
}

// conflict reads the version that won. The 409's text would name it too, but text is not an interface.
func (i *Index) conflict(ctx context.Context, id string, version int64) (Outcome, error) {
	winner, _, err := i.Get(ctx, id)
	if err != nil {
		return 0, err
	}
	return settled(winner.Version, version), nil
}

// settled compares with the version that is there; a deleted document has none, and its tombstone is newer than ours.
func settled(winner, ours int64) Outcome {
	if winner == ours {
		return Same
	}
	return Stale
}

// blame finds out whose fault a refusal is. A 400 is the document's only if the index is as it should be; without that
// look, an index changed by hand would send every good document to the dead letters.
func (i *Index) blame(err error, check func() error) error {
	if Down(err) {
		i.verified.Store(false)
		return err
	}
	if !hasStatus(err, 400) && !hasStatus(err, 413) {
		return err
	}
	if wrong := check(); wrong != nil {
		return wrong
	}
	return fmt.Errorf("%w: %w", ErrDocument, err)
}

func ptr[T any](v T) *T { return &v }
