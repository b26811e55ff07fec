//go:build verify

package consumertest

const stops = 30
