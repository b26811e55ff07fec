package demo

import (
	"context"
	"fmt"

	"example.com/paycast/deploy/local/internal/ask"
	"example.com/paycast/shared/event"
)

// effects follows one payment through every part.
func (s *story) effects(ctx context.Context, c *customer) error {
	for _, hop := range []func(context.Context, *customer) error{s.sent, s.credited, s.notified, s.indexed} {
		if err := hop(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// awaitRow waits until the outbox holds the one row of c's payment, as wanted.
func (s *story) awaitRow(ctx context.Context, c *customer, what string, wanted func(ask.Row) bool) error {
	return s.await(ctx, "relay", "the outbox row of "+c.order+" "+what, func(ctx context.Context) (string, bool, error) {
		rows, err := s.Paid(ctx, c.order)
		if err != nil || len(rows) != 1 {
			return fmt.Sprintf("%d rows", len(rows)), false, err
		}
		c.paid = rows[0]
		return c.paid.Status, wanted(c.paid), nil
	})
}

// sent shows the order, its outbox row, and the record at the place where the broker put it.
func (s *story) sent(ctx context.Context, c *customer) error {
	o, err := s.Order(ctx, c.order)
	if err != nil {
		return err
	}
	if o.Status != event.StatusPaid || o.Payment == nil {
		return fmt.Errorf("payment: order %s is %s and must be PAID", o.OrderNo, o.Status)
	}
	s.hop("payment", data{"order_no": o.OrderNo, "version": o.Version}, "order %s is %s, version %d", short(o.OrderNo), o.Status, o.Version)
	err = s.awaitRow(ctx, c, "SENT", func(r ask.Row) bool { return r.Status == "SENT" && r.Partition != nil && r.Offset != nil })
	if err != nil {
		return err
	}
	takeover := ""
	if c.paid.Takeovers > 0 {
		takeover = ", taken over when the dead relay's lease ended"
	}
	s.hop("outbox", data{"event_id": c.paid.EventID, "status": c.paid.Status, "takeovers": c.paid.Takeovers},
		"row %s is %s, %d ms after the commit%s", short(c.paid.EventID), c.paid.Status, c.paid.Delay.Milliseconds(), takeover)
	key, id, err := s.Record(ctx, *c.paid.Partition, *c.paid.Offset)
	if err != nil {
		return err
	}
	if id != c.paid.EventID || key != c.order {
		return fmt.Errorf("kafka: partition %d offset %d holds event %s of key %s, not the row's", *c.paid.Partition, *c.paid.Offset, id, key)
	}
	s.hop("kafka", data{"topic": event.Topic, "partition": *c.paid.Partition, "offset": *c.paid.Offset},
		"%s, partition %d, offset %d: this event, keyed by this order", event.Topic, *c.paid.Partition, *c.paid.Offset)
	return nil
}

func (s *story) credited(ctx context.Context, c *customer) error {
	var acc ask.Account
	err := s.await(ctx, "points", "the credit for "+c.User, func(ctx context.Context) (string, bool, error) {
		var err error
		acc, err = s.Account(ctx, c.User)
		return fmt.Sprintf("balance %d", acc.Balance), len(acc.Entries) > 0, err
	})
	if err != nil {
		return err
	}
	if e := acc.Entries[0]; len(acc.Entries) != 1 || e.EventID != c.paid.EventID || e.Points != c.points || acc.Balance != c.points {
		return fmt.Errorf("points: %s has %d entries and a balance of %d; it must be one entry of %d", c.User, len(acc.Entries), acc.Balance, c.points)
	}
	s.hop("points", data{"user": c.User, "balance": acc.Balance}, "%+d for %s, balance %d", acc.Entries[0].Points, c.User, acc.Balance)
	return nil
}

func (s *story) notified(ctx context.Context, c *customer) error {
	var sent ask.Notice
	err := s.await(ctx, "sender", "the SMS of order "+c.order, func(ctx context.Context) (string, bool, error) {
		all, err := s.Notices(ctx, c.order)
		if err != nil || len(all) != 1 {
			return fmt.Sprintf("%d commands", len(all)), false, err
		}
		sent = all[0]
		return "the command is " + sent.Status, sent.Status == "SENT", nil
	})
	if err != nil {
		return err
	}
	if sent.EventID != c.paid.EventID {
		return fmt.Errorf("notify: the command of order %s belongs to event %s, not to the row's", c.order, sent.EventID)
	}
	s.hop("notify", data{"command_id": sent.CommandID, "attempts": sent.Attempts}, "command %s is %s at attempt %d", short(sent.CommandID), sent.Status, sent.Attempts)
	all, err := s.Messages(ctx)
	if err != nil {
		return err
	}
	messages := all[c.Phone]
	if len(messages) != 1 || messages[0].Key != sent.CommandID {
		return fmt.Errorf("world: the SMS provider has %d messages for order %s and must have one, under the command's id", len(messages), c.order)
	}
	s.hop("world", data{"messages": len(messages)}, "1 SMS to %s: %q", masked(c.Phone), messages[0].Text)
	return nil
}

func (s *story) indexed(ctx context.Context, c *customer) error {
	var d ask.Document
	err := s.await(ctx, "search", "the document of order "+c.order, func(ctx context.Context) (string, bool, error) {
		var err error
		d, err = s.Document(ctx, c.order)
		return fmt.Sprintf("version %d", d.Version), d.Version >= c.paid.Version, err
	})
	if err != nil {
		return err
	}
	if d.Version != c.paid.Version || d.Source.Status != event.StatusPaid {
		return fmt.Errorf("search: the document of order %s is %s, version %d; it must be PAID, version %d", c.order, d.Source.Status, d.Version, c.paid.Version)
	}
	s.hop("search", data{"version": d.Version, "status": d.Source.Status}, "document %s is %s, version %d", short(c.order), d.Source.Status, d.Version)
	return nil
}

// masked keeps a phone number off the screen.
func masked(phone string) string { return phone[:3] + "…" + phone[len(phone)-2:] }
