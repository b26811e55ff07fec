package payment_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"example.com/paycast/services/payment/internal/payment"
	"example.com/paycast/shared/webhook"
)

func TestSuccessPaysTheOrderOnceAndEveryRepetitionHasTheSameAnswer(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	body := encode(t, notice("payment.succeeded", no, "trade-1"))

	first := s.callback("w-1", body)
	require.Equal(t, http.StatusOK, first.status, "%s", first.body)
	require.Equal(t, success, first.body)
	require.Equal(t, "application/json", first.header.Get("Content-Type"))
	o := s.get(no)
	require.Equal(t, "PAID", o.Status)
	require.EqualValues(t, 2, o.Version)
	require.Equal(t, map[string]any{
		"trade_no": "trade-1", "amount": 1999.0, "currency": "EUR", "paid_at": "2026-05-04T03:02:01.123456Z",
	}, o.Payment)
	require.Empty(t, o.Incidents)

	after := s.tables()
	for range 3 {
		again := s.callback("w-1", body)
		require.Equal(t, first.status, again.status)
		require.Equal(t, first.body, again.body)
		require.Equal(t, first.header.Get("Content-Type"), again.header.Get("Content-Type"))
	}
	require.Equal(t, after, s.tables())

	// The same trade under another webhook id, and other words for the same thing.
	require.Equal(t, success, s.callback("w-2", append(body, '\n')).body)
	require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded", s.events(no))
	require.Equal(t, 1, s.count("select count(*) from t_payment"))
	require.Equal(t, 2, s.count("select count(*) from t_callback_receipt"))
}

func TestOtherBodyUnderAKnownWebhookIDIsAConflict(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no, other := s.newOrder(), s.newOrder()
	require.Equal(t, http.StatusOK, s.callback("w", encode(t, notice("payment.succeeded", no, "trade-1"))).status)
	after := s.tables()
	for _, body := range []map[string]any{
		notice("payment.succeeded", other, "trade-2"),
		notice("payment.succeeded", no, "trade-2"),
		notice("payment.closed", other, ""),
		{"type": "something.else"},
	} {
		require.Equal(t, http.StatusConflict, s.callback("w", encode(t, body)).status)
	}
	require.Equal(t, after, s.tables(), "a refused callback leaves no step, no incident, no receipt")
}

// TestRepetitionIsAnsweredFromItsReceiptWhateverHasChanged: judged again today, the callback would pay.
func TestRepetitionIsAnsweredFromItsReceiptWhateverHasChanged(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	body := encode(t, notice("payment.succeeded", no, "trade-1", func(data map[string]any) { data["merchant_id"] = "merchant-2" }))
	require.Equal(t, success, s.callback("w", body).body)
	after := s.tables()
	moved := *s
	moved.env = maps.Clone(s.env)
	moved.env["MERCHANT_ID"] = "merchant-2"
	moved.url, _ = moved.start(payment.API)
	require.Equal(t, success, moved.callback("w", body).body)
	require.Equal(t, after, s.tables())
}

func TestSignatureIsCheckedOverTheRawBytes(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for i, spell := range []func(string) string{
		func(b string) string { return strings.ReplaceAll(b, `":`, "\" :\t ") },
		func(b string) string { return "\r\n" + strings.ReplaceAll(b, ",", ",\r\n") + "\r\n" },
		func(b string) string { return b + "\n" },
		func(b string) string { return strings.Replace(b, "payment.succeeded", `payment\u002esucceeded`, 1) },
		func(b string) string { return strings.Replace(b, "1999", "1999.0", 1) },
		func(b string) string {
			data, found := strings.CutPrefix(b, `{"data":`)
			require.True(t, found)
			return `{"extra":1,"data":` + data
		},
		func(b string) string {
			return strings.Replace(b, `"merchant_id"`, `"note":"caf\u00e9 é","merchant_id"`, 1)
		},
	} {
		no := s.newOrder()
		body := spell(string(encode(t, notice("payment.succeeded", no, fmt.Sprint("trade-", i)))))
		before := s.tables()
		h := s.signed("w", []byte(body))
		a := send(t, "POST", s.url+"/callbacks/payment", h, []byte(" "+body))
		require.Equal(t, http.StatusUnauthorized, a.status, "one more blank: %q", body)
		require.Equal(t, before, s.tables())

		a = s.callback(uuid.NewString(), []byte(body))
		require.Equal(t, http.StatusOK, a.status, "%q: %s", body, a.body)
		require.Equal(t, "PAID", s.get(no).Status, "%q", body)
	}
}

func TestForgedCallbacksGetOneGenericAnswerAndLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	body := encode(t, notice("payment.succeeded", s.newOrder(), "trade-1"))
	good := s.signed("w", body)
	with := func(name string, values ...string) http.Header {
		h := good.Clone()
		h[http.CanonicalHeaderKey(name)] = values
		if len(values) == 0 {
			h.Del(name)
		}
		return h
	}
	signedBy := func(secret string, at time.Time) http.Header {
		secrets, err := webhook.ParseSecrets(secret)
		require.NoError(t, err)
		h := http.Header{"Content-Type": {"application/json"}}
		require.NoError(t, secrets.Sign(h, "w", at, body))
		return h
	}
	sig := good.Get(webhook.HeaderSignature)
	before := s.tables()
	var generic []byte
	for name, h := range map[string]http.Header{
		"no id":             with(webhook.HeaderID),
		"no timestamp":      with(webhook.HeaderTimestamp),
		"no signature":      with(webhook.HeaderSignature),
		"empty signature":   with(webhook.HeaderSignature, ""),
		"two signatures":    with(webhook.HeaderSignature, sig, sig),
		"two ids":           with(webhook.HeaderID, "w", "w"),
		"wrong length":      with(webhook.HeaderSignature, sig[:len(sig)-4]),
		"unknown algorithm": with(webhook.HeaderSignature, strings.Replace(sig, "v1,", "v9,", 1)),
		"hex":               with(webhook.HeaderSignature, "v1,"+strings.Repeat("ab", 32)),
		"other id":          with(webhook.HeaderID, "w-2"),
		"other secret":      signedBy(webhook.NewSecret(), time.Now()),
		"stale":             signedBy(s.env["WEBHOOK_SECRETS"], time.Now().Add(-webhook.Tolerance-time.Minute)),
		"from the future":   signedBy(s.env["WEBHOOK_SECRETS"], time.Now().Add(webhook.Tolerance+time.Minute)),
	} {
		a := send(t, "POST", s.url+"/callbacks/payment", h, body)
		require.Equal(t, http.StatusUnauthorized, a.status, name)
		if generic == nil {
			generic = a.body
		}
		require.Equal(t, string(generic), string(a.body), "%s: the answer must not tell reasons apart", name)
	}
	require.Equal(t, before, s.tables())
}

func TestBothSecretsVerifyDuringARotation(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	old := s.env["WEBHOOK_SECRETS"]
	s.env["WEBHOOK_SECRETS"] = webhook.NewSecret() + "," + old
	rotated := *s
	rotated.url, _ = s.start(payment.API)
	no := rotated.newOrder()
	rotated.pay(no, "trade-1") // still signed with the old one
	require.Equal(t, "PAID", s.get(no).Status)
}

func TestBodiesThatAreNotTakenLeaveNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	good := encode(t, notice("payment.succeeded", s.newOrder(), "trade-1"))
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, err := zip.Write(good)
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	large := append(bytes.Repeat([]byte(" "), 64<<10), good...)
	full := append(bytes.Repeat([]byte(" "), 64<<10-len(good)), good...)

	before := s.tables()
	for name, c := range map[string]struct {
		status int
		body   []byte
		header [2]string
	}{
		"no content type":    {415, good, [2]string{"Content-Type", ""}},
		"form":               {415, good, [2]string{"Content-Type", "application/x-www-form-urlencoded"}},
		"text":               {415, good, [2]string{"Content-Type", "text/plain"}},
		"another charset":    {415, good, [2]string{"Content-Type", "application/json; charset=latin1"}},
		"gzip":               {415, zipped.Bytes(), [2]string{"Content-Encoding", "gzip"}},
		"too large":          {413, large, [2]string{}},
		"empty":              {400, nil, [2]string{}},
		"no JSON":            {400, []byte("hello"), [2]string{}},
		"cut off":            {400, good[:len(good)-3], [2]string{}},
		"not UTF-8":          {400, bytes.Replace(good, []byte("trade-1"), []byte("trade\xff"), 1), [2]string{}},
		"NUL":                {400, bytes.Replace(good, []byte("trade-1"), []byte(`trade\u0000`), 1), [2]string{}},
		"field twice":        {400, bytes.Replace(good, []byte(`"amount":1999`), []byte(`"amount":1,"amount":1999`), 1), [2]string{}},
		"fraction of a cent": {400, bytes.Replace(good, []byte("1999"), []byte("1999.5"), 1), [2]string{}},
		"no amount":          {400, bytes.Replace(good, []byte(`"amount":1999,`), nil, 1), [2]string{}},
		"no type":            {400, []byte(`{"data":{}}`), [2]string{}},
	} {
		h := s.signed("w", c.body)
		if c.header[0] != "" {
			h.Set(c.header[0], c.header[1])
		}
		a := send(t, "POST", s.url+"/callbacks/payment", h, c.body)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), name)
		require.NotContains(t, string(a.body), "trade-1", name)
	}
	chunked, err := http.NewRequest(http.MethodPost, s.url+"/callbacks/payment", io.MultiReader(bytes.NewReader(large)))
	require.NoError(t, err)
	require.EqualValues(t, 0, chunked.ContentLength, "without a length it is sent in chunks")
	chunked.Header = s.signed("w", large)
	resp, err := client.Do(chunked)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	require.Equal(t, before, s.tables())

	require.Equal(t, http.StatusOK, s.callback("w", full).status, "64 KiB are not too much")
}

// TestCallbackThatDoesNotFitItsOrderBecomesAnIncident: nothing else changes, and the provider is content.
func TestCallbackThatDoesNotFitItsOrderBecomesAnIncident(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	set := func(field string, value any) func(map[string]any) {
		return func(data map[string]any) { data[field] = value }
	}
	stranger := "0198f5a8-0000-7000-8000-000000000000"
	payer := s.newOrder()
	s.pay(payer, "taken")
	for name, c := range map[string]struct {
		prepare func(no string)
		body    func(no string) map[string]any
		kind    string
		expects string
		got     string
	}{
		"wrong amount": {nil, func(no string) map[string]any {
			return notice("payment.succeeded", no, "a1", set("amount", 1))
		}, "wrong_amount", "1999 EUR", "1 EUR"},
		"nothing paid": {nil, func(no string) map[string]any {
			return notice("payment.succeeded", no, "a2", set("amount", 0))
		}, "wrong_amount", "1999 EUR", "0 EUR"},
		"wrong currency": {nil, func(no string) map[string]any {
			return notice("payment.succeeded", no, "a3", set("currency", "USD"))
		}, "wrong_currency", "EUR", "USD"},
		"for another merchant": {nil, func(no string) map[string]any {
			return notice("payment.succeeded", no, "a4", set("merchant_id", "m-2"))
		}, "wrong_merchant", merchant, "m-2"},
		"a trade that paid another order": {nil, func(no string) map[string]any {
			return notice("payment.succeeded", no, "taken")
		}, "trade_of_other_order", "trade of order " + payer, ""},
		"a second payment": {func(no string) { s.pay(no, "a5") }, func(no string) map[string]any {
			return notice("payment.succeeded", no, "a6")
		}, "second_payment", "one payment, trade a5", "1999 EUR by trade a6"},
		"success after cancel": {func(no string) { s.cancel(no) }, func(no string) map[string]any {
			return notice("payment.succeeded", no, "a7")
		}, "paid_after_close", "no payment, the order is CANCELED", "1999 EUR"},
		"success after close": {func(no string) { s.callback("c-"+no, encode(t, notice("payment.closed", no, ""))) }, func(no string) map[string]any {
			return notice("payment.succeeded", no, "a8")
		}, "paid_after_close", "no payment, the order is CLOSED", "1999 EUR"},
		"closed although paid": {func(no string) { s.pay(no, "a9") }, func(no string) map[string]any {
			return notice("payment.closed", no, "a9")
		}, "closed_after_paid", "paid by trade a9", "closed"},
		"failed for another merchant": {nil, func(no string) map[string]any {
			return notice("payment.failed", no, "a10", set("merchant_id", "m-2"))
		}, "wrong_merchant", merchant, "m-2"},
		"closed with another amount": {nil, func(no string) map[string]any {
			return notice("payment.closed", no, "", set("amount", 5))
		}, "wrong_amount", "1999 EUR", "5 EUR"},
	} {
		no := s.newOrder()
		if c.prepare != nil {
			c.prepare(no)
		}
		before := s.tables()
		body := encode(t, c.body(no))
		a := s.callback("w-"+no, body)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", name, a.body)
		require.Equal(t, success, a.body, name)
		o := s.get(no)
		require.Len(t, o.Incidents, 1, name)
		require.Equal(t, c.kind, o.Incidents[0].Kind, name)
		require.Equal(t, c.expects, o.Incidents[0].Expected, name)
		if c.got != "" {
			require.Equal(t, c.got, o.Incidents[0].Received, name)
		}
		after := s.tables()
		for _, table := range []string{"t_order", "t_payment", "t_outbox_event"} {
			require.Equal(t, before[table], after[table], "%s: %s", name, table)
		}
		require.Equal(t, success, s.callback("w-"+no, body).body, name)
		require.Equal(t, after, s.tables(), "%s: a repetition adds nothing", name)
		require.Equal(t, success, s.callback("v-"+no, body).body, name)
		require.Len(t, s.get(no).Incidents, 1, "%s: under another id it is the same incident", name)
	}

	before := s.tables()
	require.Equal(t, success, s.callback("w-stranger", encode(t, notice("payment.succeeded", stranger, "a11"))).body)
	after := s.tables()
	require.Equal(t, before["t_order"], after["t_order"])
	var page struct {
		Incidents []struct {
			Kind    string
			OrderNo string `json:"order_no"`
		}
	}
	require.NoError(t, s.ops.GetJSON(t.Context(), "/ops/incidents?state=OPEN", nil, &page))
	require.Len(t, page.Incidents, len(after["t_incident"]))
	last := page.Incidents[len(page.Incidents)-1]
	require.Equal(t, "unknown_order", last.Kind)
	require.Equal(t, stranger, last.OrderNo)
}

func TestCallbacksThatChangeNothingAreRecorded(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	for id, body := range map[string]map[string]any{
		"failed":          notice("payment.failed", no, "t-1"),
		"failed, bare":    {"type": "payment.failed", "data": map[string]any{"merchant_id": merchant, "order_no": no}},
		"unknown":         {"type": "dispute.opened", "data": []int{1}},
		"unknown, bare":   {"type": "payment.refunded"},
		"unknown, strict": {"type": "PAYMENT.SUCCEEDED", "data": notice("", no, "t-2")["data"]},
	} {
		id = strings.ReplaceAll(id, ", ", "-")
		a := s.callback(id, encode(t, body))
		require.Equal(t, http.StatusOK, a.status, "%s: %s", id, a.body)
		require.Equal(t, success, a.body, id)
		require.Equal(t, 1, s.count("select count(*) from t_callback_receipt where webhook_id = $1", id), id)
	}
	require.Equal(t, "CREATED", s.get(no).Status)
	require.Equal(t, "1 OrderCreated", s.events(no))
	require.Equal(t, 0, s.count("select count(*) from t_incident"))
	s.pay(no, "t-1") // the same trade, failed before, may still succeed
	require.Equal(t, success, s.callback("late", encode(t, notice("payment.failed", no, "t-1"))).body)
	require.Equal(t, "PAID", s.get(no).Status)
}

// TestLateSuccessForARefundedTradeIsNoNewPayment: months later some providers say "finished" about a trade that was
// paid back long ago.
func TestLateSuccessForARefundedTradeIsNoNewPayment(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	no := s.newOrder()
	s.pay(no, "trade-1")
	require.Equal(t, http.StatusOK, s.cancel(no).status)
	before := s.get(no)
	for _, kind := range []string{"payment.succeeded", "payment.closed", "payment.failed"} {
		require.Equal(t, success, s.callback(uuid.NewString(), encode(t, notice(kind, no, "trade-1"))).body)
	}
	require.Equal(t, before, s.get(no), "still cancelled, the refund still due, nothing else")
	require.Equal(t, "1 OrderCreated, 2 PaymentSucceeded, 3 OrderCanceled", s.events(no))
}
