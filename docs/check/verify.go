package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	makeCommand = regexp.MustCompile(`(?:^|[ ;&])make ([a-z][a-z0-9-]*)`)
	envName     = regexp.MustCompile(`^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:=.*)?$`)
	metricName  = regexp.MustCompile(`^([a-z]+_[a-z0-9_]+)(?:\{[a-z_,]*\})?$`)
	symbolName  = regexp.MustCompile(`^([a-z][a-z0-9]*)\.([A-Z]\w*(?:\.[A-Z]\w*)?)(?:\(.*\))?$`)
	testName    = regexp.MustCompile(`^Test[A-Z]\w+$`)
	pathName    = regexp.MustCompile(`^\.?[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)*/?$`)
)

// Fault says what is wrong with a claimed name, or "" when all is well. Spans that are none of the kinds that this
// package knows are taken for prose.
func (r *Repository) Fault(span string) string {
	for _, m := range makeCommand.FindAllStringSubmatch(span, -1) {
		if !r.Targets[m[1]] {
			return fmt.Sprintf("there is no make target %q", m[1])
		}
	}
	if m := symbolName.FindStringSubmatch(span); m != nil {
		if names, ours := r.Symbols[m[1]]; ours && !names[m[2]] {
			return fmt.Sprintf("package %s has no %s", m[1], m[2])
		}
		return ""
	}
	switch {
	case testName.MatchString(span):
		if !r.Tests[span] {
			return fmt.Sprintf("there is no test %s", span)
		}
	case envName.MatchString(span):
		name, _, _ := strings.Cut(span, "=")
		if !r.Mentions(name) && !r.Mentions(strings.TrimSuffix(name, "_FILE")) {
			return fmt.Sprintf("%s stands nowhere in the program", name)
		}
	case r.looksLikePath(span):
		if _, err := os.Stat(filepath.Join(r.Root, span)); err != nil {
			return fmt.Sprintf("there is no file or folder %s", span)
		}
	case metricName.MatchString(span):
		name := metricName.FindStringSubmatch(span)[1]
		if !r.Mentions(name) {
			return fmt.Sprintf("%s stands nowhere in the program (a metric, table or column)", name)
		}
	}
	return ""
}

// looksLikePath: a path that begins with one of the repository's top-level folders, or names a file at its top.
func (r *Repository) looksLikePath(span string) bool {
	if !pathName.MatchString(span) {
		return false
	}
	first, _, nested := strings.Cut(span, "/")
	switch first {
	case "docs", "deploy", "shared", "services", "tools", ".ci":
		return nested
	}
	return !nested && (strings.HasSuffix(span, ".md") || span == "go.work" || span == "Makefile")
}

// LinkFault says what is wrong with a link from the document file, or "". Links to other sites are not followed.
func (r *Repository) LinkFault(file, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	path, anchor, _ := strings.Cut(target, "#")
	full := filepath.Join(r.Root, file)
	if path != "" {
		full = filepath.Join(r.Root, filepath.Dir(file), path)
	}
	content, err := os.ReadFile(full)
	if err != nil {
		if info, statErr := os.Stat(full); statErr == nil && info.IsDir() {
			return ""
		}
		return fmt.Sprintf("the link %s leads nowhere", target)
	}
	if anchor != "" && strings.HasSuffix(full, ".md") && !Anchors(string(content))[anchor] {
		return fmt.Sprintf("%s has no heading #%s", path, anchor)
	}
	return ""
}
