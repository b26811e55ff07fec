package payment

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const goodData = `{"merchant_id":"m","trade_no":"t","order_no":"o","amount":1999,"currency":"EUR","paid_at":"2026-01-02T03:04:05Z"}`

func TestBodiesThatMeanTheSameAreReadAlike(t *testing.T) {
	t.Parallel()
	plain, err := decodeNotice("w", []byte(`{"type":"payment.succeeded","data":`+goodData+`}`))
	require.NoError(t, err)
	for name, body := range map[string]string{
		"keys in reverse":  `{"data":{"paid_at":"2026-01-02T03:04:05Z","currency":"EUR","amount":1999,"order_no":"o","trade_no":"t","merchant_id":"m"},"type":"payment.succeeded"}`,
		"blanks":           "\r\n{ \"type\" :\t\"payment.succeeded\" , \"data\" : " + goodData + " }\r\n",
		"escapes":          `{"type":"payment\u002esucceeded","data":` + goodData + `}`,
		"decimal point":    `{"type":"payment.succeeded","data":` + strings.Replace(goodData, "1999", "1999.00", 1) + `}`,
		"unknown fields":   `{"x":[{"type":1},{"type":2}],"type":"payment.succeeded","data":` + strings.Replace(goodData, "{", `{"fee":{"amount":3},`, 1) + `}`,
		"another zone":     `{"type":"payment.succeeded","data":` + strings.Replace(goodData, "03:04:05Z", "05:04:05+02:00", 1) + `}`,
		"nanoseconds":      `{"type":"payment.succeeded","data":` + strings.Replace(goodData, "05Z", "05.000000999Z", 1) + `}`,
		"null where empty": `{"timestamp":null,"type":"payment.succeeded","data":` + goodData + `}`,
	} {
		n, err := decodeNotice("w", []byte(body))
		require.NoError(t, err, name)
		n.BodyHash = plain.BodyHash // of the bytes, which differ
		require.Equal(t, plain, n, name)
	}
}

func TestBodiesWithTwoMeaningsOrNoneAreRefused(t *testing.T) {
	t.Parallel()
	with := func(old, replacement string) string {
		require.Contains(t, goodData, old)
		return `{"type":"payment.succeeded","data":` + strings.Replace(goodData, old, replacement, 1) + `}`
	}
	for body, want := range map[string]string{
		``:                      "not a JSON value",
		`{`:                     "not a JSON value",
		`null`:                  "type is missing",
		`[]`:                    "must not be a JSON array",
		`{"type":1}`:            `"type" must not be a JSON number`,
		`{"type":""}`:           "type is missing",
		`{"type":"a"} {}`:       "more than one",
		`{"type":"a"}x`:         "more than one",
		`{"type":"a","type":1}`: "a field twice",
		`{"type":"a","Type":1}`: "a field twice",
		`{"type":"a","x":[{"y":{"k":1,"\u212a":2}}]}`:             "a field twice",
		"{\"type\":\"\xff\"}":                                     "not UTF-8",
		`{"type":"a","x":"\u0000"}`:                               "NUL",
		`{"type":"a","x\u0000":1}`:                                "NUL",
		`{"type":"payment.succeeded"}`:                            "data:",
		`{"type":"payment.succeeded","data":null}`:                "data.order_no is missing",
		`{"type":"payment.succeeded","data":"x"}`:                 "data:",
		`{"type":"payment.succeeded","data":{}}`:                  "data.amount is missing",
		`{"type":"payment.failed","data":{"order_no":"o"}}`:       "data.merchant_id is missing",
		with("1999", "1999.5"):                                    "whole number",
		with("1999", "1e3"):                                       "whole number",
		with("1999", `"1999"`):                                    "whole number",
		with("1999", "99999999999999999999"):                      "whole number",
		with("1999", "null"):                                      "data.amount is missing",
		with(`"t"`, `""`):                                         "data.trade_no is missing",
		with(`"t"`, `"`+strings.Repeat("t", 129)+`"`):             "data.trade_no is longer",
		with("2026-01-02T03:04:05Z", "yesterday"):                 "paid_at",
		with("2026-01-02T03:04:05Z", "9999-12-31T23:59:59-01:00"): "paid_at",
		with(`"EUR"`, `""`):                                       "data.currency is missing",
		`{"type":"` + strings.Repeat("x", 129) + `"}`:             "type is longer",
		strings.Repeat("[", 20000):                                "not a JSON value",
		`{"type":"a","x":` + strings.Repeat("[", 12000) + strings.Repeat("]", 12000) + `}`: "not a JSON value",
	} {
		_, err := decodeNotice("w", []byte(body))
		require.ErrorContains(t, err, want, "%.80s", body)
	}
}

func TestErrorsDoNotQuoteTheBody(t *testing.T) {
	t.Parallel()
	const canary = "+441632960001"
	for _, body := range []string{
		`{"type":"payment.succeeded","data":` + strings.Replace(goodData, `1999`, `"`+canary+`"`, 1) + `}`,
		`{"type":"payment.succeeded","data":` + strings.Replace(goodData, `2026-01-02T03:04:05Z`, canary, 1) + `}`,
		`{"type":["` + canary + `"]}`,
		`{"type":` + canary + `}`,
	} {
		_, err := decodeNotice("w", []byte(body))
		require.Error(t, err)
		require.NotContains(t, err.Error(), canary)
	}
}

func FuzzDecodeNoticeNeverPanicsAndAlwaysAnswersAlike(f *testing.F) {
	for _, seed := range []string{`{"type":"payment.succeeded","data":` + goodData + `}`, `{"type":"x"}`, `[`, `{"a":{"b":[1,{"c":null}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		first, err1 := decodeNotice("w", body)
		second, err2 := decodeNotice("w", body)
		require.Equal(t, first, second)
		require.Equal(t, fmt.Sprint(err1), fmt.Sprint(err2))
		if err1 == nil {
			require.True(t, json.Valid(body), "accepted what is not JSON")
			require.LessOrEqual(t, len(first.TradeNo), maxWord)
			if first.Type == noticeSucceeded {
				require.Equal(t, first.PaidAt, first.PaidAt.Truncate(time.Microsecond))
			}
		}
	})
}
