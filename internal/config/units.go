package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Sizes in bytes.
const (
	KiB int64 = 1 << 10
	MiB int64 = 1 << 20
	GiB int64 = 1 << 30
)

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}, {"", 1}}

// ParseSize reads a number of bytes: 1048576, 1MiB, 1.5GiB, 500kB.
func ParseSize(s string) (int64, error) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(n) || math.Abs(n)*float64(u.bytes) > math.MaxInt64/2 {
			break
		}
		return int64(n * float64(u.bytes)), nil
	}
	return 0, fmt.Errorf("%q is not a size like 10MiB", s)
}

// FormatSize writes a number of bytes in the largest unit that divides it.
func FormatSize(n int64) string {
	for _, u := range sizeUnits[:3] {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
