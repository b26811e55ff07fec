// Package load makes customers: orders at a steady rate, each paid, some of the callbacks sent several times at once.
//
//	tick ▶ POST /orders ▶ provider.Pay (duplicates) ▶ a line in the journal        ... N times, then it stops by itself
//
// Its promise is the journal: for every order what the outside saw, as success, fail or unknown. A checker holds that
// against the system: what was answered with success must be there, what is unknown must be there wholly or not at all.
//
// It is bounded in every direction: orders, rate, orders under way, time per request. When the system is slower than
// the rate, the generator falls behind and says so, instead of piling up requests.
package load
