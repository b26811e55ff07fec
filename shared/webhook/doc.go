// Package webhook answers one question about an incoming callback: did the holder of our secret send exactly these
// bytes just now? Its promise: Verify returns nil only for a body that was signed, byte for byte, with one of our
// secrets, within Tolerance of our clock in either direction.
//
//	raw body ─┐
//	headers  ─┴─▶ each header once, well formed ▶ HMAC over id.timestamp.body ▶ age ▶ nil | Refused
//
// The scheme is Standard Webhooks, symmetric (v1), computed by that project's library. What this package adds is what
// the library leaves to its user: several secrets at once so that they can be rotated, start-up checks that refuse a
// secret anybody could guess, and refusal of headers that are repeated or that mean the same in two spellings.
//
// The body must be the bytes that came over the wire. Decoding and encoding JSON again changes white space, the order
// of keys and escapes, and so the signature.
//
// The package does not own: reading the body and its size limit, the HTTP answer (callers give the same 401 for every
// reason), remembering webhook ids, and whether an authentic callback fits any order.
package webhook
