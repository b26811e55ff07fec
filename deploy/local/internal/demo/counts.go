package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// counts lists what a run has checked: "events 6, groups 3, orders 3".
func counts(checked map[string]any) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(checked)) {
		switch n := checked[name].(type) {
		case float64:
			all = append(all, fmt.Sprintf("%s %.0f", name, n))
		case map[string]any:
			if name == "groups" {
				all = append(all, fmt.Sprintf("%s %d", name, len(n)))
			}
		}
	}
	return strings.Join(all, ", ")
}
