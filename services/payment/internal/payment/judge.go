package payment

import (
	"fmt"

	"example.com/paycast/shared/event"
)

// verdict is what a callback led to; it is kept in its receipt.
type verdict string

const (
	verdictPaid          verdict = "paid"
	verdictAlreadyPaid   verdict = "already_paid"
	verdictClosed        verdict = "closed"
	verdictAlreadyClosed verdict = "already_closed"
	verdictFailed        verdict = "failed"
	verdictUnknownType   verdict = "unknown_type"
	verdictIncident      verdict = "incident"
)

// judge holds a notice against the order that it names and decides; it changes nothing. o is nil when there is no such
// order, own is the order's payment or nil, owner is the order number that the notice's trade already paid, or "".
// With verdictIncident it returns what to record. merchantID is ours.
func judge(n notice, o *order, own *payment, owner, merchantID string) (verdict, *incident) {
	if !n.known() {
		return verdictUnknownType, nil
	}
	report := func(kind, expected, received string) (verdict, *incident) {
		return verdictIncident, &incident{
			Kind: kind, OrderNo: n.OrderNo, TradeNo: n.TradeNo, Expected: expected, Received: received,
		}
	}
	// A signature only says who speaks. First comes whether it is about us at all.
	switch {
	case n.MerchantID != merchantID:
		return report(incidentWrongMerchant, merchantID, n.MerchantID)
	case o == nil:
		return report(incidentUnknownOrder, "an order of ours", n.OrderNo)
	case n.Currency != "" && n.Currency != o.Currency:
		return report(incidentWrongCurrency, o.Currency, n.Currency)
	case n.Currency != "" && n.Amount != o.Amount:
		return report(incidentWrongAmount, money(o.Amount, o.Currency), money(n.Amount, n.Currency))
	}
	switch n.Type {
	case noticeFailed:
		// An earlier attempt may well fail before or after another one paid.
		return verdictFailed, nil
	case noticeClosed:
		switch o.Status {
		case event.StatusCreated:
			return verdictClosed, nil
		case event.StatusPaid:
			return report(incidentClosedAfterPaid, "paid by trade "+own.TradeNo, "closed")
		default:
			return verdictAlreadyClosed, nil
		}
	}
	switch {
	case owner == o.OrderNo:
		// Also when the order was cancelled since: a late "finished" for a known trade is no new payment.
		return verdictAlreadyPaid, nil
	case owner != "":
		return report(incidentTradeOfOther, "trade of order "+owner, "order "+o.OrderNo)
	case own != nil:
		return report(incidentSecondPayment, "one payment, trade "+own.TradeNo, money(n.Amount, n.Currency)+" by trade "+n.TradeNo)
	case o.Status != event.StatusCreated:
		return report(incidentPaidAfterClose, "no payment, the order is "+o.Status, money(n.Amount, n.Currency))
	}
	return verdictPaid, nil
}

func money(amount int64, currency string) string { return fmt.Sprintf("%d %s", amount, currency) }
