package payment_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is the order's state machine once more, written from the contract and not from the code.
type model struct {
	status    string
	paidBy    string
	events    []string
	incidents []string // kind and trade, sorted, each once
}

func (m *model) step(status, event string) {
	m.status = status
	m.events = append(m.events, fmt.Sprintf("%d %s", len(m.events)+1, event))
}

func (m *model) incident(kind, trade string) {
	m.incidents = append(m.incidents, kind+" "+trade)
	slices.Sort(m.incidents)
	m.incidents = slices.Compact(m.incidents)
}

// apply is one fact; the answer's status is what the sender must get.
func (m *model) apply(fact string) (status int) {
	what, trade, _ := strings.Cut(fact, " ")
	switch {
	case what == "short":
		m.incident("wrong_amount", trade)
	case what == "success" && m.paidBy == trade:
	case what == "success" && m.paidBy != "":
		m.incident("second_payment", trade)
	case what == "success" && m.status == "CREATED":
		m.paidBy = trade
		m.step("PAID", "PaymentSucceeded")
	case what == "success":
		m.incident("paid_after_close", trade)
	case what == "closed" && m.status == "CREATED":
		m.step("CLOSED", "OrderClosed")
	case what == "closed" && m.status == "PAID":
		m.incident("closed_after_paid", trade)
	case what == "cancel" && m.status == "CLOSED":
		return http.StatusConflict
	case what == "cancel" && m.status != "CANCELED":
		if m.paidBy != "" {
			m.incident("refund_due", m.paidBy)
		}
		m.step("CANCELED", "OrderCanceled")
	}
	return http.StatusOK
}

// TestAnyMixOfFactsLeadsWhereTheModelSays: any number, order and repetition of what a provider can say and a customer
// can do. No fact is lost: it makes a step, was known, or leaves an incident.
func TestAnyMixOfFactsLeadsWhereTheModelSays(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	facts := []string{"success a", "success b", "short a", "short c", "closed a", "closed b", "failed a", "cancel"}
	rapid.Check(t, func(t *rapid.T) {
		no := s.newOrder()
		m := model{status: "CREATED", events: []string{"1 OrderCreated"}}
		for _, fact := range rapid.SliceOfN(rapid.SampledFrom(facts), 1, 10).Draw(t, "facts") {
			want := m.apply(fact)
			for range rapid.IntRange(1, 2).Draw(t, "times") { // the second time under another webhook id
				require.Equal(t, want, s.tell(no, fact).status, fact)
			}
			o := s.get(no)
			require.Equal(t, m.status, o.Status, fact)
			require.EqualValues(t, len(m.events), o.Version, fact)
			require.Equal(t, strings.Join(m.events, ", "), s.events(no), fact)
			require.Equal(t, m.paidBy != "", o.Payment != nil, fact)
			var incidents []string
			for _, i := range o.Incidents {
				incidents = append(incidents, i.Kind+" "+strings.TrimSuffix(i.TradeNo, no))
			}
			slices.Sort(incidents)
			require.Equal(t, m.incidents, incidents, fact)
		}
	})
}

// tell sends one fact of the model. Trades of different orders differ.
func (s *stack) tell(no, fact string) answer {
	what, trade, _ := strings.Cut(fact, " ")
	var body map[string]any
	switch what {
	case "cancel":
		return s.cancel(no)
	case "short":
		body = notice("payment.succeeded", no, trade+no, func(data map[string]any) { data["amount"] = 1 })
	case "success":
		body = notice("payment.succeeded", no, trade+no)
	default:
		body = notice("payment."+what, no, trade+no)
	}
	return s.callback(uuid.NewString(), encode(s.t, body))
}
