package elastictest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// state is everything the server holds. Each change is an entry: it goes into the journal first and is applied then, by
// the same code that applies the journal at the next start.
type state struct {
	indices map[string]*index
	aliases map[string]map[string]bool // alias → index names
	journal *os.File                   // nil: in memory only
	failed  error                      // the journal has half a line at its end; nothing may follow it
}

type index struct {
	name     string
	mapping  mapping
	settings settings
	live     map[string]*document // what reads by id see
	visible  map[string]*document // what searches see
	pending  []pending            // live but not yet visible
	graves   map[string]grave     // versions of deleted documents
	seq      int64
}

type document struct {
	id      string
	version int64
	seq     int64
	source  json.RawMessage
	fields  map[string][]value
}

type pending struct {
	id string
	at time.Time
}

type grave struct {
	version int64
	at      time.Time
}

// rememberDeletes is Elasticsearch's index.gc_deletes. After it, and after a restart, an old write brings a deleted
// document back.
const rememberDeletes = time.Minute

// entry is one line of the journal.
type entry struct {
	Op      string          `json:"op"` // create, settings, aliases, drop, put, delete
	Index   string          `json:"index,omitempty"`
	ID      string          `json:"id,omitempty"`
	Version int64           `json:"version,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

func open(dir string) (*state, error) {
	st := &state{indices: map[string]*index{}, aliases: map[string]map[string]bool{}}
	if dir == "" {
		return st, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("opening the stand-in's data: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "journal.jsonl"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the stand-in's data: %w", err)
	}
	end, err := st.replay(f)
	if err == nil {
		// A last line without its end was never acknowledged; the next entry must not be glued to it.
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the stand-in's journal: %w", err), f.Close())
	}
	st.journal = f
	return st, nil
}

// replay applies all complete lines and returns where they end.
func (st *state) replay(f io.Reader) (int64, error) {
	var end int64
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return 0, fmt.Errorf("entry at byte %d: %w", end, err)
		}
		st.apply(e)
		end += int64(len(line))
	}
	for _, ix := range st.indices {
		ix.publish()
		clear(ix.graves)
	}
	return end, nil
}

// commit makes a change. Once it returns nil the change survives the death of the process.
func (st *state) commit(e entry) error {
	if st.journal != nil && st.failed == nil {
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if st.failed = enc.Encode(e); st.failed == nil {
			_, st.failed = st.journal.Write(line.Bytes())
		}
	}
	if st.failed != nil {
		return fmt.Errorf("writing the journal: %w", st.failed)
	}
	st.apply(e)
	return nil
}

func (st *state) close() error {
	if st.journal == nil {
		return nil
	}
	return st.journal.Close()
}

// apply cannot fail: what it is given was checked before it was written down.
func (st *state) apply(e entry) {
	ix := st.indices[e.Index]
	switch e.Op {
	case "create":
		var c creation
		_ = json.Unmarshal(e.Body, &c)
		st.indices[e.Index] = &index{
			name: e.Index, mapping: c.Mappings, settings: c.Settings,
			live: map[string]*document{}, visible: map[string]*document{}, graves: map[string]grave{},
		}
		for alias := range c.Aliases {
			st.point(alias, e.Index, true)
		}
	case "settings":
		_ = json.Unmarshal(e.Body, &ix.settings)
	case "aliases":
		var u aliasUpdate
		_ = json.Unmarshal(e.Body, &u)
		for _, a := range u.Actions {
			if a.Remove != nil {
				st.point(a.Remove.Alias, a.Remove.Index, false)
			} else {
				st.point(a.Add.Alias, a.Add.Index, true)
			}
		}
	case "drop":
		delete(st.indices, e.Index)
		for alias := range st.aliases {
			st.point(alias, e.Index, false)
		}
	case "put":
		fields, _ := ix.mapping.parse(e.Body)
		ix.live[e.ID] = &document{id: e.ID, version: e.Version, seq: ix.seq, source: e.Body, fields: fields}
		delete(ix.graves, e.ID)
		ix.touched(e.ID)
	case "delete":
		delete(ix.live, e.ID)
		ix.graves[e.ID] = grave{e.Version, time.Now()}
		ix.touched(e.ID)
	}
}

func (st *state) point(alias, index string, on bool) {
	switch targets := st.aliases[alias]; {
	case on && targets == nil:
		st.aliases[alias] = map[string]bool{index: true}
	case on:
		targets[index] = true
	default:
		delete(targets, index)
		if len(targets) == 0 {
			delete(st.aliases, alias)
		}
	}
}

func (ix *index) touched(id string) {
	ix.seq++
	ix.pending = append(ix.pending, pending{id, time.Now()})
}

// due makes visible what has waited for the refresh interval. Doing it when somebody looks needs no goroutine.
func (ix *index) due(now time.Time) {
	if ix.settings.refresh < 0 {
		return
	}
	n := 0
	for n < len(ix.pending) && now.Sub(ix.pending[n].at) >= ix.settings.refresh {
		ix.show(ix.pending[n].id)
		n++
	}
	ix.pending = ix.pending[n:]
}

// publish makes every write visible.
func (ix *index) publish() {
	for _, p := range ix.pending {
		ix.show(p.id)
	}
	ix.pending = nil
}

func (ix *index) show(id string) {
	if doc := ix.live[id]; doc != nil {
		ix.visible[id] = doc
	} else {
		delete(ix.visible, id)
	}
}

// version is the version that a write must beat, and whether there is one.
func (ix *index) version(id string) (int64, bool) {
	if doc := ix.live[id]; doc != nil {
		return doc.version, true
	}
	if g, ok := ix.graves[id]; ok {
		if time.Since(g.at) < rememberDeletes {
			return g.version, true
		}
		delete(ix.graves, id)
	}
	return 0, false
}
