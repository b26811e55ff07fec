package provider

import (
	"encoding/json"
	"net/http"
	"time"

	"example.com/paycast/shared/ops"
)

// ServeHTTP is POST /pay: a Payment in, its Report out once every copy is done.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Copies, delays and attempts add up to more than the server's own time-outs allow.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	var pay Payment
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<10))
	decoder.DisallowUnknownFields() // a misspelt fault must not pass for a test that found nothing
	if err := decoder.Decode(&pay); err != nil {
		ops.Problem(w, http.StatusBadRequest, "invalid", err.Error())
		return
	}
	report, err := p.Pay(r.Context(), pay)
	switch {
	case r.Context().Err() != nil:
		ops.Problem(w, http.StatusServiceUnavailable, "stopped", "the provider was told to stop")
	case err != nil:
		ops.Problem(w, http.StatusBadRequest, "invalid", err.Error())
	default:
		ops.WriteJSON(w, http.StatusOK, report)
	}
}
