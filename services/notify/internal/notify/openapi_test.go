package notify_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
)

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

// asDescribed reports an answer of the API that openapi.yaml does not describe.
func asDescribed(req *http.Request, status int, header http.Header, body []byte) error {
	router, err := described()
	if err != nil {
		return err
	}
	route, params, err := router.FindRoute(req)
	if err != nil {
		return fmt.Errorf("%s %s is not described: %w", req.Method, req.URL.Path, err)
	}
	return openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
}

func TestAnswerThatIsNotDescribedIsNoticed(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1/notifications?order_no=x", nil)
	require.NoError(t, err)
	json := http.Header{"Content-Type": {"application/json"}}
	require.NoError(t, asDescribed(req, 200, json, []byte(`{"notifications": []}`)))
	require.Error(t, asDescribed(req, 200, json, []byte(`{"notifications": [{"phone": "+441632960007"}]}`)))
	require.Error(t, asDescribed(req, 418, json, []byte(`{}`)))
}
