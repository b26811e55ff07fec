package check

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Claim is one thing that a document says exists.
type Claim struct {
	File string // relative to the root
	Line int
	Text string // the code span or link target
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// Documents are the Markdown files below root, generated and hidden folders left out.
func Documents(root string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

// Claims reads the code spans and the links of one document. Fenced blocks are left out, but for the commands at the
// start of a console block's lines ("$ make demo"), which people will type.
func Claims(root, path string) (spans, links []Claim, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return nil, nil, err
	}
	fenced := false
	for i, line := range strings.Split(string(content), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			if command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok {
				spans = append(spans, Claim{rel, i + 1, command})
			}
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			spans = append(spans, Claim{rel, i + 1, m[1]})
		}
		for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
			links = append(links, Claim{rel, i + 1, m[1]})
		}
	}
	return spans, links, nil
}

// Anchors are the heading anchors of a document, as GitHub makes them.
func Anchors(content string) map[string]bool {
	anchors := map[string]bool{}
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fenced := false
	for line := range strings.SplitSeq(content, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if !fenced && strings.HasPrefix(line, "#") {
			heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			anchors[strings.ReplaceAll(drop.ReplaceAllString(heading, ""), " ", "-")] = true
		}
	}
	return anchors
}
