package recordbatch

import (
	"encoding/binary"
	"math/bits"
)

// Fields of an LZ4 frame's header: a magic number, a descriptor (flags, block size and what the flags announce), and a
// checksum of the descriptor.
const (
	lz4Magic         = 0x184D2204
	atLZ4Flags       = 4
	lz4HasSize       = 0x08 // 8 bytes
	lz4HasDictionary = 0x01 // 4 bytes
)

// mendLZ4 gives a payload of magic 0 with the header checksum that LZ4 demands. Clients and brokers of that time
// computed it over the frame's magic number as well (KAFKA-3160), and readers have to bear it. The message's own CRC
// guards these bytes. What is no LZ4 frame is given as it is.
func mendLZ4(frame []byte) []byte {
	if len(frame) <= atLZ4Flags || binary.LittleEndian.Uint32(frame) != lz4Magic {
		return frame
	}
	end := atLZ4Flags + 2
	if frame[atLZ4Flags]&lz4HasSize != 0 {
		end += 8
	}
	if frame[atLZ4Flags]&lz4HasDictionary != 0 {
		end += 4
	}
	if len(frame) <= end {
		return frame
	}
	mended := append([]byte(nil), frame...)
	mended[end] = byte(xxh32(frame[atLZ4Flags:end]) >> 8)
	return mended
}

// xxh32 is xxHash32 with seed 0 of fewer than 16 bytes, which is all that a descriptor has.
func xxh32(p []byte) uint32 {
	const p1, p2, p3, p4, p5 uint32 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := p5 + uint32(len(p))
	for ; len(p) >= 4; p = p[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(p)*p3, 17) * p4
	}
	for _, b := range p {
		h = bits.RotateLeft32(h+uint32(b)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
