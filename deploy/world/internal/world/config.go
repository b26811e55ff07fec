// Package world wires the two providers and the load generator into one program.
package world

import (
	"cmp"

	"example.com/paycast/deploy/world/provider"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/webhook"
)

// Payments is how the payment provider is configured. It is exported because fields of an unexported embedded struct
// cannot be set from the environment.
type Payments struct {
	PaymentURL     string `env:"PAYMENT_URL"`
	MerchantID     string `env:"MERCHANT_ID,required,notEmpty"`
	WebhookSecret  string `env:"WEBHOOK_SECRET"`
	WebhookSecrets string `env:"WEBHOOK_SECRETS"` // several, newest first, which signs
}

const defaultPaymentURL = "http://127.0.0.1:8081"

func (p Payments) provider() (*provider.Provider, error) {
	secrets, err := webhook.ParseSecrets(cmp.Or(p.WebhookSecrets, p.WebhookSecret))
	if err != nil {
		return nil, &service.ConfigError{Err: err}
	}
	return provider.New(p.PaymentURL, p.MerchantID, secrets)
}
