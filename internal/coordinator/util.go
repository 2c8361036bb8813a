package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"mirrord/internal/mirror"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func comparePartitions(a, b mirror.Partition) int {
	return cmp.Or(cmp.Compare(a.Mirror, b.Mirror), slices.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Index, b.Index))
}
