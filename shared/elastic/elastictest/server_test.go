package elastictest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/elastic"
)

// childEnv makes the test binary run a stand-in and nothing else: "address dir".
const childEnv = "ELASTICTEST_CHILD"

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		var addr, dir string
		if _, err := fmt.Sscan(child, &addr, &dir); err != nil {
			panic(err)
		}
		if err := Serve(context.Background(), addr, dir); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// spawn runs a stand-in as a process of its own and waits until it answers.
func spawn(t *testing.T, addr, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+addr+" "+dir)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		res, err := http.Get("http://" + addr + "/_cluster/health")
		return err == nil && res.Body.Close() == nil
	}, time.Minute, 20*time.Millisecond)
	return cmd
}

func freeAddr(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

func TestAcknowledgedWritesSurviveKill9(t *testing.T) {
	t.Parallel()
	addr, dir := freeAddr(t), t.TempDir()
	child := spawn(t, addr, dir)
	b := setup(t, "http://"+addr)
	acked := make(chan int64, 1000)
	go func() {
		defer close(acked)
		for v := int64(1); ; v++ { // until the server is gone
			if _, err := b.Put(t.Context(), "a", v, fields{"amount": v, "title": "<b>"}); err != nil {
				return
			}
			acked <- v
		}
	}()
	var last int64
	for v := range acked {
		if last = v; v == 50 {
			require.NoError(t, child.Process.Kill())
		}
	}
	require.GreaterOrEqual(t, last, int64(50))
	_ = child.Wait()

	spawn(t, addr, dir)
	doc, ok, err := b.Get(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, ok)
	assert.GreaterOrEqual(t, doc.Version, last, "an acknowledged version is lost")
	assert.JSONEq(t, fmt.Sprintf(`{"amount": %d, "title": "<b>"}`, doc.Version), string(doc.Source))
	outcome, err := b.Put(t.Context(), "a", last-1, fields{})
	require.NoError(t, err)
	assert.Equal(t, elastic.Stale, outcome, "versions are kept too")
	n, err := b.Count(t.Context(), elastic.Query{Match: map[string]string{"title": "b"}})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n, "and what was written is found")
}

func TestALineCutOffByACrashIsForgottenAndWritingGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := New(dir)
	require.NoError(t, err)
	created := s.createIndex("orders-1", []byte(`{"mappings": `+testMapping+`, "aliases": {"orders": {}}}`))
	require.Equal(t, 200, created.status)
	put := func(s *Server, version int64) int {
		return s.write("orders", order{id: "a", version: version, versionType: "external", source: []byte(`{"amount": 1}`)}, &Request{}).status
	}
	require.Equal(t, 201, put(s, 1))
	require.NoError(t, s.Close())
	journal := filepath.Join(dir, "journal.jsonl")
	f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"op":"put","index":"orders-1","id":"a","ver`)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	for version := int64(2); version < 4; version++ { // the second time reads what was written after the cut
		s, err = New(dir)
		require.NoError(t, err)
		assert.Equal(t, 409, put(s, version-1))
		assert.Equal(t, 200, put(s, version))
		require.NoError(t, s.Close())
	}
}

func TestDeletedVersionsAreForgottenAtRestartAsInElasticsearch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := New(dir)
	require.NoError(t, err)
	require.Equal(t, 200, s.createIndex("orders-1", []byte(`{"mappings": `+testMapping+`}`)).status)
	write := func(s *Server, version int64, remove bool) int {
		return s.write("orders-1", order{id: "a", version: version, versionType: "external", remove: remove, source: []byte(`{}`)}, &Request{}).status
	}
	require.Equal(t, 201, write(s, 1, false))
	require.Equal(t, 200, write(s, 3, true))
	require.Equal(t, 409, write(s, 2, false))
	require.NoError(t, s.Close())
	s, err = New(dir)
	require.NoError(t, err)
	assert.Equal(t, 201, write(s, 2, false), "an old version is back: the reason why nothing is ever deleted")
	require.NoError(t, s.Close())
}

func TestWhatTheStandInDoesNotKnowItSays(t *testing.T) {
	t.Parallel()
	_, url := Start(t)
	b := setup(t, url)
	for _, call := range []string{
		"POST /" + b.alias + "/_update/a", "POST /_reindex", "GET /", "POST /" + b.alias + "/_delete_by_query",
		"PUT /" + b.alias + "/_doc/a?refresh=true", "PUT /no-such-index/_doc/a",
	} {
		var method, path string
		_, err := fmt.Sscan(call, &method, &path)
		require.NoError(t, err)
		status, _ := b.raw(t, method, path, `{}`)
		assert.Equal(t, 501, status, call)
	}
	for _, body := range []string{
		`{}`, `{"sort": [{"order_no": {"order": "asc"}}], "aggs": {}}`,
		`{"sort": [{"order_no": {"order": "asc"}}], "query": {"fuzzy": {"title": "x"}}}`,
	} {
		status, _ := b.raw(t, "POST", "/"+b.alias+"/_search", body)
		assert.Equal(t, 501, status, body)
	}
}
