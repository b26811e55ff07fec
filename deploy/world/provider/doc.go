// Package provider is the payment provider: it takes a customer's money and tells us by signed callbacks until we say
// that we heard.
//
//	Pay ▶ body, made once ▶ copies, several at once ▶ sign ▶ POST /callbacks/payment ─┬─ 200 ▶ done
//	                                                  ▲──── wait, the same bytes ◀────┴─ anything else, or no answer
//
// Its promise is what real providers promise: an accepted payment is reported at least once, the bytes of a report do
// not change between attempts, and an answer other than 200 means that it comes again, later each time, a bounded
// number of times. A Mode breaks one thing on purpose.
package provider
