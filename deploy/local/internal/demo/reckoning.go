package demo

import (
	"context"
	"errors"
	"fmt"

	"example.com/paycast/deploy/local/internal/ask"
	"example.com/paycast/shared/event"
)

// reckoning asks every part once more, now that all is quiet, and lets the reconciler compare all of it.
func (s *story) reckoning(ctx context.Context) error {
	s.Chapter("Does everything agree?")
	id, err := s.StartRun(ctx)
	if err != nil {
		return err
	}
	var done ask.Run
	err = s.await(ctx, "reconcile", "the run's end", func(ctx context.Context) (string, bool, error) {
		done, err = s.Run(ctx, id)
		return done.Status, done.Status != "running" && done.Status != "", err
	})
	if err != nil {
		return err
	}
	var bad []error
	for _, f := range done.Findings {
		bad = append(bad, fmt.Errorf("reconcile: %s", f))
	}
	s.hop("reconcile", data{"run": done.ID, "status": done.Status, "checked": done.Checked}, "run %s says %s, with %d findings; checked %s",
		short(done.ID), done.Status, len(done.Findings), counts(done.Checked))
	header := []string{"customer", "paid", "order", "event", "record", "copies", "points", "SMS", "document"}
	var rows [][]string
	for _, c := range s.customers() {
		cells, err := s.closing(ctx, c)
		bad = append(bad, err)
		rows = append(rows, cells)
	}
	s.table(header, rows)
	for _, c := range s.customers() {
		if c.copies > 1 {
			s.Note("%s's event is in Kafka %d times: its first sender died without knowing that it had arrived. The effects are there once.", c.User, c.copies)
		}
	}
	if done.Status != "agree" {
		bad = append(bad, fmt.Errorf("reconcile: the run says %s %s", done.Status, done.Error))
	}
	return errors.Join(bad...)
}

// closing is a customer's line of the closing table. Whatever is not exactly once is an error.
func (s *story) closing(ctx context.Context, c *customer) ([]string, error) {
	o, err1 := s.Order(ctx, c.order)
	rows, err2 := s.Paid(ctx, c.order)
	copies, err3 := s.Copies(ctx, *c.paid.Partition, c.order)
	acc, err4 := s.Account(ctx, c.User)
	all, err5 := s.Messages(ctx)
	doc, err6 := s.Document(ctx, c.order)
	messages := all[c.Phone]
	c.copies = copies[c.paid.EventID]
	err := errors.Join(err1, err2, err3, err4, err5, err6)
	if err == nil && (o.Status != event.StatusPaid || len(rows) != 1 || c.copies < 1 || len(acc.Entries) != 1 ||
		acc.Balance != c.points || len(messages) != 1 || doc.Version != o.Version) {
		err = fmt.Errorf("%s's payment is not everywhere exactly once: order %s, %d rows, %d copies, %d entries, balance %d, %d messages, document version %d of %d",
			c.User, o.Status, len(rows), c.copies, len(acc.Entries), acc.Balance, len(messages), doc.Version, o.Version)
	}
	return []string{
		c.User, c.shown, fmt.Sprintf("%s %s v%d", short(c.order), o.Status, o.Version), short(c.paid.EventID),
		fmt.Sprintf("%d@%d", *c.paid.Partition, *c.paid.Offset), fmt.Sprint(c.copies), fmt.Sprint(acc.Balance),
		fmt.Sprint(len(messages)), fmt.Sprintf("v%d %s", doc.Version, doc.Source.Status),
	}, err
}
