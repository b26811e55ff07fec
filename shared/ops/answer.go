package ops

import (
	"encoding/json"
	"net/http"
)

// WriteJSON answers v with the given status.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		Problem(w, http.StatusInternalServerError, "internal", "the answer could not be encoded")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client is gone; there is nobody to tell
}

// ProblemDetails is an error answer after RFC 9457.
type ProblemDetails struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

const (
	problemURN  = "urn:paycast:problem:"
	noOperation = "no-operation"
)

// Problem answers with problem details. kind names the problem for programs, in a URN; detail is for people and says
// what to do next.
func Problem(w http.ResponseWriter, status int, kind, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(ProblemDetails{
		Type: problemURN + kind, Title: http.StatusText(status), Status: status, Detail: detail,
	})
}
