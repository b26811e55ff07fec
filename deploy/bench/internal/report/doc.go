// Package report turns drains into figures: medians with their spread, ratios, JSON, a table and a chart.
//
// A ratio is taken within each round, between drains that ran one after the other, and then the median of the rounds is
// given: what else the machine does at that time is then in both sides of it.
//
// The package does not own: what is measured (internal/stage) and in which order (the program).
package report
