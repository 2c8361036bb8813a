package recordbatch

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// varint reads a zigzag varint. n is 0 if p ends too early or the number is too long.
func varint(p []byte) (v int64, n int) {
	if len(p) > 1 {
		if p[0] < 0x80 {
			u := uint64(p[0])
			return int64(u>>1) ^ -int64(u&1), 1
		}
		if p[1] < 0x80 {
			u := uint64(p[0]&0x7f) | uint64(p[1])<<7
			return int64(u>>1) ^ -int64(u&1), 2
		}
	}
	v, n = binary.Varint(p)
	return v, max(n, 0)
}

// varint32 reads a zigzag varint that must fit an int32.
func varint32(p []byte) (v int32, n int) {
	w, n := varint(p)
	if w < math.MinInt32 || w > math.MaxInt32 {
		return 0, 0
	}
	return int32(w), n
}

// varintSize is the number of bytes that appendVarint writes.
func varintSize(v int64) int {
	return (bits.Len64(uint64(v)<<1^uint64(v>>63)|1) + 6) / 7
}

func appendVarint(p []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		p = append(p, byte(u)|0x80)
		u >>= 7
	}
	return append(p, byte(u))
}
