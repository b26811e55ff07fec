package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/telemetry"
)

// lookUp bounds a question to a neighbour.
const lookUp = 2 * time.Second

// contacts asks payment for phone numbers. They are personal data that events, logs and this database do not carry.
type contacts struct{ payment ops.Client }

func newContacts(opsURL, token string, tracer trace.TracerProvider) contacts {
	route := func(*http.Request) string { return "/ops/orders/{no}/contact" }
	return contacts{ops.Client{BaseURL: opsURL, Token: token, HTTP: &http.Client{
		Timeout: lookUp, Transport: telemetry.Transport(tracer, http.DefaultTransport, route),
	}}}
}

// phone returns the number, or a code that says why there is none. Every trouble is worth another try: what looks like
// a missing order may be a wrong address.
func (c contacts) phone(ctx context.Context, orderNo string) (phone, code string) {
	var answer struct {
		Phone string `json:"phone"`
	}
	err := c.payment.GetJSON(ctx, "/ops/orders/"+url.PathEscape(orderNo)+"/contact", nil, &answer)
	var refused *ops.StatusError
	switch {
	case errors.As(err, &refused):
		return "", fmt.Sprintf("contact_http_%d", refused.Status)
	case err != nil:
		return "", "contact_unavailable"
	case answer.Phone == "":
		return "", "contact_empty"
	}
	return answer.Phone, ""
}
