package elastictest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
)

// creation is the body of a request that creates an index.
type creation struct {
	Settings settings                   `json:"settings"`
	Mappings mapping                    `json:"mappings"`
	Aliases  map[string]json.RawMessage `json:"aliases"`
}

// settings are the few that mean something here. Unknown ones are refused, as a stand-in that ignores what it was asked
// for lies.
type settings struct {
	refresh       time.Duration // negative: never
	writeBlock    bool
	readOnlyBlock bool // allows deletion; set by a full disk
	raw           map[string]json.RawMessage
}

func (s *settings) UnmarshalJSON(b []byte) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(b, &given); err != nil {
		return err
	}
	if s.raw == nil {
		s.raw = map[string]json.RawMessage{}
	}
	for name, raw := range given {
		s.raw[name] = raw
		var err error
		switch name {
		case "refresh_interval":
			var text string
			if err = json.Unmarshal(raw, &text); err == nil && text == "-1" {
				s.refresh = -1
			} else if err == nil {
				s.refresh, err = time.ParseDuration(text)
			}
		case "index.blocks.write":
			err = json.Unmarshal(orFalse(raw), &s.writeBlock)
		case "index.blocks.read_only_allow_delete":
			err = json.Unmarshal(orFalse(raw), &s.readOnlyBlock)
		case "number_of_replicas", "auto_expand_replicas": // there is only one node
		default:
			err = fmt.Errorf("unknown setting [%s]", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s settings) MarshalJSON() ([]byte, error) { return json.Marshal(s.raw) }

// orFalse: null takes a setting away.
func orFalse(raw json.RawMessage) []byte {
	if string(raw) == "null" {
		return []byte("false")
	}
	return raw
}

var indexName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

func (s *Server) createIndex(name string, body []byte) answer {
	if !indexName.MatchString(name) {
		return refuse(400, "invalid_index_name_exception", "Invalid index name ["+name+"]")
	}
	if s.state.aliases[name] != nil {
		return refuse(400, "invalid_index_name_exception", "Invalid index name ["+name+"], already exists as alias")
	}
	if s.state.indices[name] != nil {
		return refuse(400, "resource_already_exists_exception", "index ["+name+"] already exists")
	}
	c := creation{Settings: settings{refresh: time.Second}}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return refuse(400, "mapper_parsing_exception", err.Error())
	}
	for alias := range c.Aliases {
		if a, ok := s.badAlias(alias); !ok {
			return a
		}
	}
	if err := s.state.commit(entry{Op: "create", Index: name, Body: body}); err != nil {
		return broken(err)
	}
	return answer{200, map[string]any{"acknowledged": true, "shards_acknowledged": true, "index": name}}
}

func (s *Server) badAlias(alias string) (answer, bool) {
	if s.state.indices[alias] != nil {
		return refuse(400, "invalid_alias_name_exception", "Invalid alias name ["+alias+"]: an index or data stream exists with the same name as the alias"), false
	}
	return answer{}, true
}

// named returns the indices that a name means: one by its own name, or those behind an alias.
func (s *Server) named(name string) []*index {
	if ix := s.state.indices[name]; ix != nil {
		return []*index{ix}
	}
	var found []*index
	for _, target := range slices.Sorted(maps.Keys(s.state.aliases[name])) {
		found = append(found, s.state.indices[target])
	}
	return found
}

func (s *Server) dropIndex(name string) answer {
	if s.state.aliases[name] != nil {
		return refuse(400, "illegal_argument_exception", "The provided expression ["+name+"] matches an alias, specify the corresponding concrete indices instead.")
	}
	if s.state.indices[name] == nil {
		return noIndex(name)
	}
	return s.acknowledge(entry{Op: "drop", Index: name})
}

func (s *Server) getMapping(name string) answer {
	found := map[string]any{}
	for _, ix := range s.named(name) {
		found[ix.name] = map[string]any{"mappings": ix.mapping}
	}
	if len(found) == 0 {
		return noIndex(name)
	}
	return answer{200, found}
}

func (s *Server) getAliases(name string) answer {
	found := map[string]any{}
	for _, ix := range s.named(name) {
		aliases := map[string]any{}
		for alias, targets := range s.state.aliases {
			if targets[ix.name] {
				aliases[alias] = struct{}{}
			}
		}
		found[ix.name] = map[string]any{"aliases": aliases}
	}
	if len(found) == 0 {
		return noIndex(name)
	}
	return answer{200, found}
}

func (s *Server) putSettings(name string, body []byte) answer {
	found := s.named(name)
	if len(found) == 0 {
		return noIndex(name)
	}
	if err := json.Unmarshal(body, &settings{}); err != nil {
		return refuse(400, "illegal_argument_exception", err.Error())
	}
	for _, ix := range found {
		if a := s.acknowledge(entry{Op: "settings", Index: ix.name, Body: body}); a.status != 200 {
			return a
		}
	}
	return answer{200, map[string]any{"acknowledged": true}}
}

// aliasUpdate is the body of POST /_aliases: all actions happen in one step.
type aliasUpdate struct {
	Actions []struct {
		Add    *aliasAction `json:"add,omitempty"`
		Remove *aliasAction `json:"remove,omitempty"`
	} `json:"actions"`
}

type aliasAction struct {
	Index     string `json:"index"`
	Alias     string `json:"alias"`
	MustExist bool   `json:"must_exist,omitempty"`
}

func (s *Server) updateAliases(body []byte) answer {
	var u aliasUpdate
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&u); err != nil {
		return refuse(400, "x_content_parse_exception", err.Error())
	}
	skipped := 0
	for _, a := range u.Actions {
		act := a.Add
		if a.Remove != nil {
			act = a.Remove
		}
		if act == nil {
			return unsupported("an alias action other than add and remove")
		}
		if s.state.indices[act.Index] == nil {
			return noIndex(act.Index)
		}
		if a.Add != nil {
			if a, ok := s.badAlias(act.Alias); !ok {
				return a
			}
		} else if !s.state.aliases[act.Alias][act.Index] {
			// Without must_exist the rest of the actions happen all the same, as in Elasticsearch.
			if skipped++; act.MustExist || skipped == len(u.Actions) {
				return refuse(404, "aliases_not_found_exception", "aliases ["+act.Alias+"] missing")
			}
		}
	}
	if a := s.acknowledge(entry{Op: "aliases", Body: body}); a.status != 200 {
		return a
	}
	return answer{200, map[string]any{"acknowledged": true, "errors": skipped > 0}}
}

func (s *Server) refresh(name string) answer {
	found := s.named(name)
	if len(found) == 0 {
		return noIndex(name)
	}
	for _, ix := range found {
		ix.publish()
	}
	return answer{200, map[string]any{"_shards": shards(len(found))}}
}

// health is green for what exists. What does not exist is red, after the time that the caller wanted to wait, which
// nobody needs here.
func (s *Server) health(names []string) answer {
	status, code := "green", 200
	if len(names) > 0 && len(s.named(names[0])) == 0 {
		status, code = "red", 408
	}
	return answer{code, map[string]any{
		"cluster_name": "stand-in", "status": status, "timed_out": code != 200,
		"number_of_nodes": 1, "number_of_data_nodes": 1,
		"active_primary_shards": len(s.state.indices), "active_shards": len(s.state.indices),
		"unassigned_shards": 0, "number_of_pending_tasks": 0,
	}}
}

func (s *Server) acknowledge(e entry) answer {
	if err := s.state.commit(e); err != nil {
		return broken(err)
	}
	return answer{200, map[string]any{"acknowledged": true}}
}

func broken(err error) answer { return refuse(500, "stand_in_exception", err.Error()) }

func shards(n int) map[string]any {
	return map[string]any{"total": n, "successful": n, "skipped": 0, "failed": 0}
}
