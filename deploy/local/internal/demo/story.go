package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/paycast/deploy/local/internal/ask"
	"example.com/paycast/deploy/local/internal/stack"
	"example.com/paycast/shared/event"
)

// customer is one of the three, with what must come of the payment.
type customer struct {
	ask.Customer
	shown  string // the amount, for people
	points int64  // one per whole unit of the currency: 29.90 EUR are 29, 4500 JPY are 4500

	order  string
	paid   ask.Row // the outbox row of the payment
	copies int     // of its event on the topic
}

func (c customer) callbacks() ask.Callbacks {
	return ask.Callbacks{OrderNo: c.order, Amount: c.Amount, Currency: c.Currency}
}

// story is what the chapters share.
type story struct {
	*Teller
	*ask.Asker
	stack           *stack.Stack // nil where nobody can be killed
	ada, bob, chiyo *customer
}

// Tell tells the story on a stack that was just brought up, and returns nil when everything agrees.
func Tell(ctx context.Context, t *Teller, s *stack.Stack) error {
	st := &story{Teller: t, stack: s}
	return st.tell(ctx, s.Vars(), "", st.orders, st.fiveCallbacks, st.refusals, st.relayDies, st.pointsDies, st.reckoning)
}

// TellPeacefully tells it on a system that runs elsewhere, as often as one likes: each time with customers of its own,
// and without killing anybody. vars are the names of the local stack's env file.
func TellPeacefully(ctx context.Context, t *Teller, vars map[string]string) error {
	st := &story{Teller: t}
	return st.tell(ctx, vars, fmt.Sprintf("%06d", time.Now().Unix()%1e6),
		st.orders, st.fiveCallbacks, st.refusals, st.bobPays, st.chiyoPaysUnderTwoIDs, st.reckoning)
}

// tell makes the customers, whose names and phone numbers end in suffix, and goes through the chapters.
func (s *story) tell(ctx context.Context, vars map[string]string, suffix string, chapters ...func(context.Context) error) error {
	a, err := ask.New(ctx, vars)
	if err != nil {
		return err
	}
	defer a.Close()
	s.Asker = a
	who := func(name, phone, title string, amount int64, currency, shown string, points int64) *customer {
		if suffix != "" {
			name, phone = name+"-"+suffix, phone[:len(phone)-len(suffix)]+suffix
		}
		return &customer{shown: shown, points: points, Customer: ask.Customer{
			User: name, Phone: phone, Title: title, Amount: amount, Currency: currency}}
	}
	s.ada = who("ada", "+31600000001", "A book", 2990, "EUR", "29.90 EUR", 29)
	s.bob = who("bob", "+441632960002", "A lamp", 12000, "GBP", "120.00 GBP", 120)
	s.chiyo = who("chiyo", "+81355550003", "A kettle", 4500, "JPY", "4500 JPY", 4500)
	for _, chapter := range chapters {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) customers() []*customer { return []*customer{s.ada, s.bob, s.chiyo} }

func (s *story) orders(ctx context.Context) error {
	s.Chapter("Three customers order")
	for _, c := range s.customers() {
		o, err := s.CreateOrder(ctx, "demo-"+c.User, c.Customer)
		if err != nil {
			return err
		}
		c.order = o.OrderNo
		s.hop("payment", data{"order_no": o.OrderNo, "user": c.User}, "%-6s orders %s for %s: order %s is %s", c.User, c.Title, c.shown, short(c.order), o.Status)
	}
	return nil
}

func (s *story) fiveCallbacks(ctx context.Context) error {
	s.Chapter("Ada pays, and the provider says so five times at once")
	five := s.ada.callbacks()
	five.Copies, five.Parallel = 5, 5
	r, err := s.Pay(ctx, five)
	if err != nil {
		return err
	}
	answers, _ := r.Answers()
	if r.Accepted != 5 || answers != 1 {
		return fmt.Errorf("payment: %d of 5 equal callbacks were accepted, with %d different answers", r.Accepted, answers)
	}
	s.hop("world", data{"accepted": r.Accepted}, "5 callbacks at once, all answered 200 with the same bytes")
	return s.effects(ctx, s.ada)
}

func (s *story) refusals(ctx context.Context) error {
	s.Chapter("Bob's payment: a forged callback, then one for the wrong amount")
	bad := s.bob.callbacks()
	bad.Mode = "bad_signature"
	r, err := s.Pay(ctx, bad)
	if err != nil {
		return err
	}
	if r.Attempts[0].Status != 401 {
		return fmt.Errorf("payment: a callback with a bad signature was answered %d and must be 401", r.Attempts[0].Status)
	}
	s.hop("world", data{"status": r.Attempts[0].Status}, "bad signature: answered 401")
	bad.Mode = "wrong_amount"
	r, err = s.Pay(ctx, bad)
	if err != nil {
		return err
	}
	if r.Attempts[0].Status != 200 {
		return fmt.Errorf("payment: an authentic callback for the wrong amount was answered %d and must be 200", r.Attempts[0].Status)
	}
	s.hop("world", data{"status": r.Attempts[0].Status}, "wrong amount: answered 200, so that it is not sent for three days")
	o, err := s.Order(ctx, s.bob.order)
	if err != nil {
		return err
	}
	if o.Status != event.StatusCreated || len(o.Incidents) != 1 {
		return fmt.Errorf("payment: after the two bad callbacks order %s is %s with %d incidents; it must be CREATED with one", o.OrderNo, o.Status, len(o.Incidents))
	}
	i := o.Incidents[0]
	s.hop("payment", data{"incident": i.ID}, "order %s is still %s; incident %d for a person: %s, expected %s, received %s",
		short(o.OrderNo), o.Status, i.ID, i.Kind, i.Expected, i.Received)
	return nil
}

func (s *story) relayDies(ctx context.Context) error {
	s.Chapter("Kafka hangs, Bob pays, and the relay is killed with his event in its hands")
	if err := s.do(ctx, "kafka", "pause"); err != nil {
		return err
	}
	begin := time.Now()
	if _, err := s.payOnce(ctx, s.bob, ""); err != nil {
		return err
	}
	s.hop("world", nil, "callback answered 200 in %d ms: it waits for nothing but the database", time.Since(begin).Milliseconds())
	claimed := func(r ask.Row) bool { return r.Status == "SENDING" }
	if err := s.awaitRow(ctx, s.bob, "claimed by the relay", claimed); err != nil {
		return err
	}
	s.hop("outbox", data{"event_id": s.bob.paid.EventID}, "row %s is %s: claimed by the relay, on its way", short(s.bob.paid.EventID), s.bob.paid.Status)
	if err := s.do(ctx, "relay", "kill"); err != nil {
		return err
	}
	if err := s.do(ctx, "kafka", "resume"); err != nil {
		return err
	}
	if err := s.do(ctx, "relay", "start"); err != nil {
		return err
	}
	return s.effects(ctx, s.bob)
}

func (s *story) pointsDies(ctx context.Context) error {
	s.Chapter("Points is killed, Chiyo pays under two webhook ids, the others go on")
	if err := s.do(ctx, "points", "kill"); err != nil {
		return err
	}
	r, err := s.payOnce(ctx, s.chiyo, "new_ids")
	if err != nil {
		return err
	}
	_, ids := r.Answers()
	s.hop("world", nil, "one trade under %d webhook ids, both answered 200", ids)
	if err := s.sent(ctx, s.chiyo); err != nil {
		return err
	}
	if err := s.notified(ctx, s.chiyo); err != nil {
		return err
	}
	if err := s.indexed(ctx, s.chiyo); err != nil {
		return err
	}
	if err := s.do(ctx, "points", "start"); err != nil {
		return err
	}
	return s.credited(ctx, s.chiyo)
}

func (s *story) bobPays(ctx context.Context) error {
	s.Chapter("Bob pays")
	if _, err := s.payOnce(ctx, s.bob, ""); err != nil {
		return err
	}
	return s.effects(ctx, s.bob)
}

func (s *story) chiyoPaysUnderTwoIDs(ctx context.Context) error {
	s.Chapter("Chiyo pays under two webhook ids")
	if _, err := s.payOnce(ctx, s.chiyo, "new_ids"); err != nil {
		return err
	}
	return s.effects(ctx, s.chiyo)
}

// payOnce reports a payment in a way that must be accepted whatever the mode.
func (s *story) payOnce(ctx context.Context, c *customer, mode string) (ask.Report, error) {
	pay := c.callbacks()
	pay.Mode, pay.Copies = mode, 1
	if mode != "" {
		pay.Copies = 2
	}
	r, err := s.Pay(ctx, pay)
	if err == nil && r.Accepted != pay.Copies {
		err = fmt.Errorf("payment: %d of %d callbacks of order %s were accepted", r.Accepted, pay.Copies, c.order)
	}
	return r, err
}

var told = map[string]string{
	"kill": "killed with SIGKILL", "start": "started again", "pause": "held with SIGSTOP: it answers nobody", "resume": "goes on",
}

func (s *story) do(ctx context.Context, name, verb string) error {
	if err := s.stack.Do(ctx, name, verb); err != nil {
		return err
	}
	s.blow(name, data{"verb": verb}, "%s", told[verb])
	return nil
}

// patience bounds the wait for one hop. It covers a lease, a session time-out and a rebalance on a very busy machine.
const patience = 3 * time.Minute

// await asks until the answer is what it has to become. look says what it saw, for the case that it never does.
func (s *story) await(ctx context.Context, part, what string, look func(context.Context) (seen string, done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seen := "no answer"
	for {
		now, done, err := look(ctx)
		switch {
		case err == nil && done:
			return nil
		case err == nil:
			seen = now
		case ctx.Err() == nil:
			seen = err.Error()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return ctx.Err()
			}
			err := fmt.Errorf("%s: %s did not happen within %s; last seen: %s", part, what, patience, seen)
			if s.stack != nil {
				err = fmt.Errorf("%w\n%s", err, s.stack.LastLines(part))
			}
			return err
		}
	}
}

// short is enough of an id to find it with.
func short(id string) string {
	if len(id) <= 8 {
		return id
	}
	return "…" + id[len(id)-8:]
}
