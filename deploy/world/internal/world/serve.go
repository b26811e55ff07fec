package world

import (
	"context"
	"fmt"
	"net/http"

	"example.com/paycast/deploy/world/sms"
	"example.com/paycast/shared/service"
)

// Serve runs both providers until ctx ends.
func Serve(ctx context.Context, env service.Env) error {
	cfg := struct {
		service.Base
		Payments
		HTTPAddr string `env:"HTTP_ADDR"`
		Dir      string `env:"DIR"` // keeps what was accepted; empty forgets it at the end
	}{Base: service.Base{OpsAddr: "127.0.0.1:9087"}, Payments: Payments{PaymentURL: defaultPaymentURL}, HTTPAddr: "127.0.0.1:8087"}
	if err := env.Parse(&cfg); err != nil {
		return err
	}
	payer, err := cfg.provider()
	if err != nil {
		return err
	}
	messages, err := sms.Open(cfg.Dir)
	if err != nil {
		return fmt.Errorf("opening the SMS provider: %w", err)
	}
	p, err := service.Start(ctx, "world", cfg.Base)
	if err != nil {
		_ = messages.Close() // the first error tells more
		return err
	}
	p.Close(func() {
		payer.Close()
		if err := messages.Close(); err != nil {
			p.Log.Error("closing the SMS provider", "error", err)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("POST /pay", payer)
	mux.Handle("/", messages)
	if err := p.Serve("api", cfg.HTTPAddr, stoppable(p.Context(), mux)); err != nil {
		return err
	}
	return p.Wait()
}

// stoppable ends every request's context when the process is told to stop: some hang on purpose, longer than a
// shutdown waits.
func stoppable(stop context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		inner := r.WithContext(ctx)
		h.ServeHTTP(w, inner)
		r.Pattern = inner.Pattern // names the request's span
	})
}
