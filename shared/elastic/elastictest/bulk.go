package elastictest

import (
	"bytes"
	"encoding/json"
	"net/url"
)

// bulkAction is the line before a document.
type bulkAction struct {
	ID          string `json:"_id"`
	Version     int64  `json:"version"`
	VersionType string `json:"version_type"`
}

func (s *Server) bulk(name string, q url.Values, body []byte, entry *Request) answer {
	var common order
	if bad := common.read(q); bad != nil {
		return *bad
	}
	if len(body) == 0 {
		return refuse(400, "parse_exception", "request body is required")
	}
	if !bytes.HasSuffix(body, []byte("\n")) {
		return refuse(400, "illegal_argument_exception", `The bulk request must be terminated by a newline [\n]`)
	}
	orders, bad := readBulk(body, common)
	if bad != nil {
		return *bad
	}
	items, failures := make([]any, len(orders)), false
	for n, o := range orders {
		verb := "index"
		if o.remove {
			verb = "delete"
		}
		a := s.write(name, o, entry)
		item, ok := a.body.(map[string]any)
		if p, refused := item["error"]; ok && refused && p != nil {
			failures = true
			item = map[string]any{"_index": name, "_id": o.id, "error": a.problem()}
		}
		item["status"] = a.status
		items[n] = map[string]any{verb: item}
	}
	return answer{200, map[string]any{"errors": failures, "took": 0, "items": items}}
}

func readBulk(body []byte, common order) ([]order, *answer) {
	var orders []order
	lines := bytes.Split(body, []byte("\n"))
	for len(lines) > 1 { // the last one is empty, after the final newline
		var action map[string]bulkAction
		dec := json.NewDecoder(bytes.NewReader(lines[0]))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&action); err != nil || len(action) != 1 {
			bad := refuse(400, "illegal_argument_exception", "Malformed action/metadata line")
			return nil, &bad
		}
		lines = lines[1:]
		for verb, act := range action {
			o := common
			o.id, o.version, o.versionType = act.ID, act.Version, act.VersionType
			switch {
			case verb == "delete":
				o.remove = true
			case verb != "index":
				bad := unsupported("the bulk action " + verb)
				return nil, &bad
			case len(lines) > 1:
				o.source, lines = lines[0], lines[1:]
			default:
				bad := refuse(400, "action_request_validation_exception", "Validation Failed: 1: no requests added;")
				return nil, &bad
			}
			if bad := o.validate(); bad != nil {
				return nil, bad
			}
			orders = append(orders, o)
		}
	}
	return orders, nil
}
