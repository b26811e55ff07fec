// Package openapitest holds the answers of an API against its OpenAPI file. A component test checks every answer that it
// gets, whatever it is about, so that the file cannot fall behind the service.
package openapitest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

// Check reports an answer to req that the file does not describe: its path, its status, its content type or its body.
// A 404 or 405 for a path that the file does not have either is as described. The file is read and validated once.
func Check(file string, req *http.Request, status int, header http.Header, body []byte) error {
	router, err := load(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	route, params, err := router.FindRoute(req)
	if err != nil {
		if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
			return nil
		}
		return fmt.Errorf("%s %s is not described: %w", req.Method, req.URL.Path, err)
	}
	err = openapi3filter.ValidateResponse(req.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		return fmt.Errorf("%s %s answers %d otherwise than described: %w", req.Method, req.URL.Path, status, err)
	}
	return nil
}

var files sync.Map // name → func() (routers.Router, error)

func load(file string) (routers.Router, error) {
	read, _ := files.LoadOrStore(file, sync.OnceValues(func() (routers.Router, error) {
		text, err := os.ReadFile(file)
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
	}))
	return read.(func() (routers.Router, error))()
}
