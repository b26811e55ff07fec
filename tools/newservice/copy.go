package main

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	template = "services/points"
	page     = "../../docs/services/points.md" // the template's page, relative to the template
)

// copied are the template's files and its page: new path, relative to the root → new content.
func copied(root, name, event string, p portPair) (map[string][]byte, error) {
	files := []string{page}
	err := filepath.WalkDir(filepath.Join(root, template), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var rel string
			rel, err = filepath.Rel(filepath.Join(root, template), path)
			files = append(files, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	edits := slices.Clone(always)
	if event != payment {
		edits = append(edits, withoutReversal...)
		files = slices.DeleteFunc(files, func(f string) bool { return slices.Contains(reversal, f) })
	}
	words := renames(name, event, p)
	made := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, template, file))
		if err != nil {
			return nil, err
		}
		content, err := rewritten(file, string(text), edits, words)
		if err != nil {
			return nil, err
		}
		target := words.Replace(filepath.ToSlash(filepath.Join(template, file)))
		if file == page {
			target = "docs/services/" + name + ".md"
		}
		made[target] = content
	}
	return made, nil
}

func rewritten(file, text string, edits []edit, words *strings.Replacer) ([]byte, error) {
	text, err := change(file, text, edits)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(file) {
	case ".sum":
		return []byte(text), nil
	case ".mod": // only its own name: what it requires is called what it is called
		first, rest, _ := strings.Cut(text, "\n")
		return []byte(words.Replace(first) + "\n" + rest), nil
	case ".go":
		content, err := format.Source([]byte(words.Replace(withoutFlow(text)))) // names of other lengths align differently
		if err != nil {
			return nil, fmt.Errorf("the copy of %s is not Go: %w", file, err)
		}
		return content, nil
	case ".sql", ".yaml", ".json", ".md":
		return []byte(words.Replace(text)), nil
	}
	return nil, fmt.Errorf("%s/%s is no part of the template: move it away", template, file)
}

// withoutFlow leaves out the marks of the walkthrough, which leads through the template and not through its copies.
func withoutFlow(text string) string {
	var kept []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "// FLOW ") {
			if n := len(kept); n > 0 && kept[n-1] == "//" {
				kept = kept[:n-1]
			}
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}
