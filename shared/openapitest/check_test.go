package openapitest_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/openapitest"
)

const described = `openapi: 3.1.0
info: {title: things, version: "1"}
paths:
  /things:
    get:
      responses:
        "200":
          description: all things
          content:
            application/json:
              schema: {type: object, required: [things], additionalProperties: false, properties: {things: {type: integer}}}
`

func TestAnAnswerThatIsNotDescribedIsNoticed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "openapi.yaml")
	require.NoError(t, os.WriteFile(file, []byte(described), 0o600))
	check := func(path string, status int, contentType, body string) error {
		req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1"+path, http.NoBody)
		require.NoError(t, err)
		return openapitest.Check(file, req, status, http.Header{"Content-Type": {contentType}}, []byte(body))
	}
	require.NoError(t, check("/things", 200, "application/json", `{"things": 3}`))
	require.NoError(t, check("/nothing", 404, "text/plain", ""))
	require.ErrorContains(t, check("/things", 200, "application/json", `{}`), "otherwise than described")
	require.ErrorContains(t, check("/things", 200, "application/json", `{"things": 3, "phone": "x"}`), "otherwise than described")
	require.ErrorContains(t, check("/things", 418, "application/json", `{"things": 3}`), "otherwise than described")
	require.ErrorContains(t, check("/things", 200, "text/html", `{"things": 3}`), "otherwise than described")
	require.ErrorContains(t, check("/others", 200, "application/json", `{}`), "is not described")
}

func TestAFileThatIsMissingIsAnError(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1/", http.NoBody)
	require.NoError(t, err)
	require.ErrorContains(t, openapitest.Check("nowhere.yaml", req, 200, nil, nil), "nowhere.yaml")
}
