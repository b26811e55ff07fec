package search

import (
	"context"
	"encoding/json"
	"fmt"

	"example.com/paycast/shared/elastic"
	"example.com/paycast/shared/facts"
)

const kindDocument = "DOCUMENT"

// damaged stands in place of the order's status when a document is not what this service wrote as that version.
const damaged = "DAMAGED"

// effects reads each order's document back from the index itself, as it is now: an event that is applied although its
// document is missing or older is damage. Events of one order show the same document.
func (p projection) effects(ctx context.Context, page []facts.Fact) error {
	seen := map[string]bool{}
	var numbers []string
	for _, f := range page {
		if !seen[f.OrderNo] {
			seen[f.OrderNo] = true
			numbers = append(numbers, f.OrderNo)
		}
	}
	written, err := p.written(ctx, numbers)
	if err != nil {
		return err
	}
	docs, err := p.index.MGet(ctx, numbers)
	if err != nil {
		return err
	}
	for i, f := range page {
		if doc, there := docs[f.OrderNo]; there {
			page[i].Effect = effect(doc, written[f.OrderNo])
		}
	}
	return nil
}

// applied is a row of t_order_search_projection.
type applied struct {
	OrderNo            string
	LastAppliedVersion int64
	Digest             string
}

func (p projection) written(ctx context.Context, numbers []string) (map[string]applied, error) {
	var rows []applied
	err := p.db.WithContext(ctx).Raw("SELECT order_no, last_applied_version, digest FROM t_order_search_projection WHERE order_no IN ?", numbers).
		Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	byNumber := make(map[string]applied, len(rows))
	for _, row := range rows {
		byNumber[row.OrderNo] = row
	}
	return byNumber, nil
}

// effect shows a document, if it is what was written, by its status. Where the index is ahead of the log there is nothing to
// compare with yet. By the digest the reconciler sees whether what was written is the order.
func effect(doc elastic.Document, written applied) *facts.Effect {
	e := &facts.Effect{Kind: kindDocument, Ref: doc.ID, Version: doc.Version, State: damaged, Copies: 1}
	var d document
	if err := json.Unmarshal(doc.Source, &d); err != nil {
		return e
	}
	e.Digest = d.digest()
	if doc.Version != written.LastAppliedVersion || e.Digest == written.Digest {
		e.State = d.Status
	}
	return e
}
