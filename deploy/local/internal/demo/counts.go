package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// counts lists what a run has checked: "events 6, orders 3".
func counts(checked map[string]any) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(checked)) {
		if n, ok := checked[name].(float64); ok {
			all = append(all, fmt.Sprintf("%s %.0f", name, n))
		}
	}
	return strings.Join(all, ", ")
}
