package elastictest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// searchRequest is what elastic.Search sends.
type searchRequest struct {
	Query       json.RawMessage         `json:"query"`
	Sort        []map[string]*sortOrder `json:"sort"`
	Size        *int                    `json:"size"`
	Version     bool                    `json:"version"`
	TrackTotal  bool                    `json:"track_total_hits"`
	SearchAfter []json.RawMessage       `json:"search_after"`
}

type sortOrder struct {
	Order string `json:"order"`
}

// queryError is a search that cannot be carried out.
type queryError struct {
	status       int
	kind, reason string
}

func (e *queryError) Error() string { return e.reason }

func badQuery(kind, format string, args ...any) *queryError {
	return &queryError{400, kind, fmt.Sprintf(format, args...)}
}

func (s *Server) search(name string, body []byte) answer {
	found := s.named(name)
	if len(found) == 0 {
		return noIndex(name)
	}
	if len(found) > 1 {
		return unsupported("a search over several indices")
	}
	var request searchRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&request); err != nil {
		return unsupported("this search: " + err.Error())
	}
	hits, total, err := found[0].find(request)
	if err != nil {
		a := refuse(err.status, err.kind, err.reason)
		if err.status == 400 { // the reason stands below the phase, as in Elasticsearch
			e := a.body.(map[string]any)["error"].(map[string]any)
			e["type"], e["reason"] = "search_phase_execution_exception", "all shards failed"
		}
		return a
	}
	return answer{200, map[string]any{
		"took": 0, "timed_out": false, "_shards": shards(1),
		"hits": map[string]any{
			"total": map[string]any{"value": total, "relation": "eq"}, "max_score": nil, "hits": hits,
		},
	}}
}

func (s *Server) count(name string, body []byte) answer {
	found := s.named(name)
	if len(found) == 0 {
		return noIndex(name)
	}
	var request struct {
		Query json.RawMessage `json:"query"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return refuse(400, "parsing_exception", err.Error())
	}
	total := 0
	for _, ix := range found {
		docs, err := ix.matching(request.Query)
		if err != nil {
			return refuse(err.status, err.kind, err.reason)
		}
		total += len(docs)
	}
	return answer{200, map[string]any{"count": total, "_shards": shards(len(found))}}
}

func (ix *index) matching(query json.RawMessage) ([]*document, *queryError) {
	ix.due(time.Now())
	match, err := ix.condition(query)
	if err != nil {
		return nil, err
	}
	var docs []*document
	for _, doc := range ix.visible {
		if match(doc) {
			docs = append(docs, doc)
		}
	}
	return docs, nil
}

func (ix *index) find(request searchRequest) ([]any, int, *queryError) {
	docs, err := ix.matching(request.Query)
	if err != nil {
		return nil, 0, err
	}
	keys, err := ix.sortKeys(request.Sort)
	if err != nil {
		return nil, 0, err
	}
	rows := make([]row, len(docs))
	for n, doc := range docs {
		rows[n] = row{doc, keys.of(doc)}
	}
	slices.SortFunc(rows, func(a, b row) int { return keys.compare(a.values, b.values) })
	if len(request.SearchAfter) > 0 {
		after, err := keys.read(request.SearchAfter)
		if err != nil {
			return nil, 0, err
		}
		first, _ := slices.BinarySearchFunc(rows, after, func(r row, after []any) int {
			if keys.compare(r.values, after) <= 0 {
				return -1
			}
			return 1
		})
		rows = rows[first:]
	}
	size := 10
	if request.Size != nil {
		size = *request.Size
	}
	if size > 10_000 {
		return nil, 0, badQuery("illegal_argument_exception", "Result window is too large, from + size must be less than or equal to: [10000] but was [%d].", size)
	}
	hits := []any{}
	for _, r := range rows[:min(size, len(rows))] {
		hit := map[string]any{"_index": ix.name, "_id": r.doc.id, "_score": nil, "_source": r.doc.source, "sort": r.values}
		if request.Version {
			hit["_version"] = r.doc.version
		}
		hits = append(hits, hit)
	}
	return hits, len(docs), nil
}
