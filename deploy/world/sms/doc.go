// Package sms is the SMS provider that the system talks to: somebody else's machine, with somebody else's failures.
//
//	POST /sms        Idempotency-Key, {to, text} ▶ 202 {message_id}; the same key gets the same answer and no second message
//	GET  /sms?key=   what became of a key: 200 {status: "accepted", message_id, ...} or 404
//	GET  /messages   everything accepted, in order of arrival
//	PUT  /mode       {mode, delay_ms, percent}: how POST /sms behaves from now on; GET /mode shows it
//
// Its promise: a key is accepted at most once, for ever, whatever the answer to the sender was. That is what makes an
// unknown outcome harmless for a sender that keeps its key. The modes open each window that a sender must survive:
//
//	ok                                        accept, answer
//	slow                                      wait delay_ms, then accept and answer
//	error, reject, rate_limited               answer 503, 422, 429 with Retry-After; nothing accepted
//	accept_then_hang, _error, _reset          accept; then no answer for delay_ms, a 503, a reset connection
//
// Questions (GET) are always answered: what cannot be asked cannot be resolved.
package sms
