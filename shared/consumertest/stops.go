//go:build !verify

package consumertest

// stops is how often a consumer is stopped under load. The long runs do it more often.
const stops = 3
