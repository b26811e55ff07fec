package elastictest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
)

// order is one wanted change of a document.
type order struct {
	id           string
	version      int64
	versionType  string
	requireAlias bool
	remove       bool
	source       []byte
}

func (o *order) read(q url.Values) *answer {
	for name, values := range q {
		var err error
		switch name {
		case "version":
			o.version, err = strconv.ParseInt(values[0], 10, 64)
		case "version_type":
			o.versionType = values[0]
		case "require_alias":
			o.requireAlias, err = strconv.ParseBool(values[0])
		case "timeout":
		default:
			a := unsupported("the parameter " + name)
			return &a
		}
		if err != nil {
			a := refuse(400, "illegal_argument_exception", "failed to parse ["+name+"]")
			return &a
		}
	}
	return nil
}

// validate is the check of a request's form. One item that fails it fails a whole bulk request.
func (o order) validate() *answer {
	var wrong string
	switch {
	case len(o.id) > 512:
		wrong = fmt.Sprintf("id is too long, must be no longer than 512 bytes but was: %d;", len(o.id))
	case o.versionType == "" && o.version != 0:
		wrong = "internal versioning can not be used for optimistic concurrency control;"
	case o.version < 0:
		wrong = fmt.Sprintf("illegal version value [%d];", o.version)
	default:
		return nil
	}
	a := refuse(400, "action_request_validation_exception", "Validation Failed: 1: "+wrong)
	return &a
}

func (s *Server) putDocument(name, id string, q url.Values, body []byte, entry *Request) answer {
	o := order{id: id, source: body}
	if bad := o.read(q); bad != nil {
		return *bad
	}
	if len(body) == 0 {
		return refuse(400, "parse_exception", "request body is required")
	}
	if bad := o.validate(); bad != nil {
		return *bad
	}
	return s.write(name, o, entry)
}

func (s *Server) deleteDocument(name, id string, q url.Values, entry *Request) answer {
	o := order{id: id, remove: true}
	if bad := o.read(q); bad != nil {
		return *bad
	}
	if bad := o.validate(); bad != nil {
		return *bad
	}
	return s.write(name, o, entry)
}

// write carries an order out and notes it in the request log.
func (s *Server) write(name string, o order, entry *Request) answer {
	a := s.carryOut(name, o)
	entry.Writes = append(entry.Writes, Write{ID: o.id, Version: o.version, Type: o.versionType, Status: a.status})
	return a
}

func (s *Server) carryOut(name string, o order) answer {
	ix, bad := s.target(name, o.requireAlias)
	if bad != nil {
		return *bad
	}
	if bad := ix.blocked(o.remove); bad != nil {
		return *bad
	}
	if bad := s.documentFault(o.id); bad != nil {
		return *bad
	}
	if !o.remove {
		if _, err := ix.mapping.parse(o.source); err != nil {
			return refuse(400, err.kind, err.reason)
		}
	}
	current, exists := ix.version(o.id)
	next := o.version
	switch o.versionType {
	case "":
		next = current + 1
	case "external":
		if exists && current >= o.version {
			return refuse(409, "version_conflict_engine_exception", fmt.Sprintf(
				"[%s]: version conflict, current version [%d] is higher or equal to the one provided [%d]", o.id, current, o.version))
		}
	case "external_gte":
		if exists && current > o.version {
			return refuse(409, "version_conflict_engine_exception", fmt.Sprintf(
				"[%s]: version conflict, current version [%d] is higher than the one provided [%d]", o.id, current, o.version))
		}
	default:
		return unsupported("version_type " + o.versionType)
	}
	had := ix.live[o.id] != nil
	seq := ix.seq
	change := entry{Op: "put", Index: ix.name, ID: o.id, Version: next, Body: o.source}
	status, result := 201, "created"
	switch {
	case o.remove && had:
		change.Op, status, result = "delete", 200, "deleted"
	case o.remove:
		change.Op, status, result = "delete", 404, "not_found"
	case had:
		status, result = 200, "updated"
	}
	if err := s.state.commit(change); err != nil {
		return broken(err)
	}
	return answer{status, map[string]any{
		"_index": ix.name, "_id": o.id, "_version": next, "result": result,
		"_shards": shards(1), "_seq_no": seq, "_primary_term": 1,
	}}
}

// target is the one index that a write goes to.
func (s *Server) target(name string, requireAlias bool) (*index, *answer) {
	found := s.named(name)
	var bad answer
	switch {
	case requireAlias && s.state.aliases[name] == nil:
		bad = refuse(404, "index_not_found_exception",
			"no such index ["+name+"] and [require_alias] request flag is [true] and ["+name+"] is not an alias")
	case len(found) == 0:
		bad = unsupported("dynamic mapping: Elasticsearch would create the index " + name + " now")
	case len(found) > 1:
		bad = refuse(400, "illegal_argument_exception", "no write index is defined for alias ["+name+"].")
	default:
		return found[0], nil
	}
	return nil, &bad
}

func (ix *index) blocked(remove bool) *answer {
	var a answer
	switch {
	case ix.settings.writeBlock:
		a = refuse(403, "cluster_block_exception", "index ["+ix.name+"] blocked by: [FORBIDDEN/8/index write (api)];")
	case ix.settings.readOnlyBlock && !remove:
		a = refuse(429, "cluster_block_exception", "index ["+ix.name+"] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has read-only-allow-delete block];")
	default:
		return nil
	}
	return &a
}

// single is the one index that a read by id goes to.
func (s *Server) single(name string) (*index, *answer) {
	found := s.named(name)
	var bad answer
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		bad = noIndex(name)
	default:
		bad = refuse(400, "illegal_argument_exception", "alias ["+name+"] has more than one index associated with it, can't execute a single index op")
	}
	return nil, &bad
}

func (s *Server) getDocument(name, id string) answer {
	ix, bad := s.single(name)
	if bad != nil {
		return *bad
	}
	if ix.live[id] == nil {
		return answer{404, ix.read(id)}
	}
	return answer{200, ix.read(id)}
}

func (ix *index) read(id string) map[string]any {
	doc := ix.live[id]
	if doc == nil {
		return map[string]any{"_index": ix.name, "_id": id, "found": false}
	}
	return map[string]any{
		"_index": ix.name, "_id": id, "_version": doc.version, "_seq_no": doc.seq, "_primary_term": 1,
		"found": true, "_source": doc.source,
	}
}

func (s *Server) mget(name string, body []byte) answer {
	var request struct {
		IDs []string `json:"ids"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return refuse(400, "x_content_parse_exception", err.Error())
	}
	if len(request.IDs) == 0 {
		return refuse(400, "action_request_validation_exception", "Validation Failed: 1: no documents to get;")
	}
	ix, bad := s.single(name)
	docs := make([]any, len(request.IDs))
	for n, id := range request.IDs {
		if bad != nil {
			docs[n] = map[string]any{"_index": name, "_id": id, "error": bad.problem()}
		} else {
			docs[n] = ix.read(id)
		}
	}
	return answer{200, map[string]any{"docs": docs}}
}
