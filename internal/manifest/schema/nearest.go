package schema

import (
	"slices"
	"strings"
)

// Nearest finds the name that was probably meant, "" if none is close.
func Nearest(name string, known []string) string {
	known = slices.Sorted(slices.Values(known))
	best, bestDistance := "", max(2, len(name)/4)+1
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return k
		}
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < bestDistance && d < len(k) && d < len(name) {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, change or swap with a neighbour to make b of a.
func distance(a, b string) int {
	before, last, now := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = slices.Clone(last), now, last
	}
	return last[len(b)]
}
