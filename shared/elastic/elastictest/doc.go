// Package elastictest is a small Elasticsearch for tests and for running without one: it answers exactly the calls that
// package elastic makes, in the JSON shapes of Elasticsearch 8.19, and says 501 to everything else.
//
// It promises what the rest of the system rests on:
//
//   - a write with an external version that is not newer is a 409, also after a deletion, for a minute;
//   - an acknowledged write survives kill -9 (it is in the kernel before the answer; power loss is not covered);
//   - a document is read at once by its id, and found by searches only after a refresh or the refresh interval;
//   - a field that the mapping does not name, or of another type, is refused with 400.
//
// Contract is the suite that holds it to the real server: both must pass, and where they differ the stand-in is wrong.
//
//	request ▶ Fault, if one is set ▶ route ▶ documents.go, indices.go, search.go ▶ state ▶ journal ▶ answer
//
// The package does not own: relevance (results are always sorted by fields), analyzers other than standard, nested
// objects, several shards or nodes, and speed with more documents than fit in memory.
package elastictest
