package mirror

import "fmt"

// Count writes a number with its noun: 1 partition, 3 partitions.
func Count[N ~int | ~int32 | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
