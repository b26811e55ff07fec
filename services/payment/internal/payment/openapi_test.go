package payment_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
)

// described is openapi.yaml, read once. Its types are not generated: they would need the same hand-written rules for
// what JSON leaves open, and every answer in these tests is held against the file anyway.
var described = sync.OnceValues(func() (routers.Router, error) {
	text, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		return nil, err
	}
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(text)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(loader.Context); err != nil {
		return nil, err
	}
	doc.Servers = nil // any address
	return legacy.NewRouter(doc)
})

// asDescribed reports an answer that openapi.yaml does not describe.
func asDescribed(req *http.Request, a answer) error {
	router, err := described()
	if err != nil {
		return err
	}
	route, params, err := router.FindRoute(req)
	if err != nil {
		if slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed}, a.status) {
			return nil // no route here and none there
		}
		return fmt.Errorf("%s %s is not described: %w", req.Method, req.URL.Path, err)
	}
	err = openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		return fmt.Errorf("%s %s answers %d otherwise than described: %w", req.Method, req.URL.Path, a.status, err)
	}
	return nil
}

func TestAnswerThatIsNotDescribedIsNoticed(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1/orders/x", nil)
	require.NoError(t, err)
	json := http.Header{"Content-Type": {"application/json"}}
	for _, a := range []answer{
		{status: 200, header: json, body: []byte(`{}`)},
		{status: 200, header: json, body: []byte(`{"order_no":"0198f5a8-0000-7000-8000-000000000000","user_id":"u","title":"t","amount":1,"currency":"EUR","status":"CREATED",` +
			`"version":1,"created_at":"2026-01-01T00:00:00Z","paid_at":null,"payment":null,"incidents":[],"phone":"+441632960001"}`)},
		{status: 418, header: json, body: []byte(`{}`)},
	} {
		require.ErrorContains(t, asDescribed(req, a), "otherwise than described", "%s", a.body)
	}
}
