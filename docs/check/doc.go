// Package check keeps the documents true. Its test reads every Markdown file of the repository and fails when one of
// them names, in a code span or a link, something that does not exist: a path, a Go symbol, a make target, an
// environment variable, a metric, or a heading of another document. The other way round, each name that programs read from
// the environment has its line in docs/configuration.md.
//
// What it does not do: judge prose. A sentence without a name in it is on its author.
package check
