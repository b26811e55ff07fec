// Package elastic writes and reads one Elasticsearch index so that an old fact never replaces a newer one.
//
// Every write carries the version of the thing it describes (version_type=external), so the server itself refuses a
// write that comes late or comes twice. That makes each write repeatable: a lost answer is settled by sending again.
//
//	Put(id, version, document)
//	   │ is the index there, with our mapping?  no ──▶ ErrNoIndex, ErrMapping: nothing is written
//	   ▼
//	PUT alias/_doc/id?version=N&version_type=external&require_alias=true
//	   ├─ 200, 201 ─────────────────────▶ Applied
//	   ├─ 409 version conflict ─ read it ─▶ Same (this very version is there) or Stale (a newer one is)
//	   ├─ 400, and the index is as it should be ─▶ ErrDocument: this document will never go in
//	   └─ no answer, 429, 502-504 ─ again, a few times ─▶ ErrDown
//
// What a caller does with an error is decided by its class: Down(err) says that every write would fail alike, so wait;
// ErrDocument says that this one will always fail, so park it; anything else may pass, so retry it later. No error
// text holds any part of a document: Elasticsearch quotes field values in its reasons, so only its error types are kept.
//
// An index is always addressed through its alias. require_alias makes the server refuse a write where the alias is
// missing, which would otherwise create an index of that name with guessed field types.
//
// The package does not own: what is in a document (the service), where the last applied version is remembered when the
// index is lost (the service's database), and deletion: there is none. Elasticsearch forgets the version of a deleted
// document after a minute, and an old write could then bring it back.
package elastic
