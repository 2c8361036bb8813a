package recordbatch

import "encoding/binary"

// Cut takes the next whole entry, of any format, off the records of a fetch answer. batch and rest are views of p. The
// error is ErrPartial when p ends inside the entry, empty p included, and ErrCorrupt when no entry can begin like this.
// The payload and the CRC are not looked at.
func Cut(p []byte) (batch Batch, rest []byte, err error) {
	if len(p) <= atMagic {
		return nil, p, ErrPartial
	}
	if err := checkEntry(p); err != nil {
		return nil, p, err
	}
	size := entryHead + int(binary.BigEndian.Uint32(p[atLength:]))
	if len(p) < size {
		return nil, p, ErrPartial
	}
	return Batch(p[:size:size]), p[size:], nil
}

// checkEntry checks offset, length and magic of an entry, so that each getter finds its field in a whole one.
func checkEntry(p []byte) error {
	if len(p) <= atMagic {
		return corrupt("%d bytes are no entry", len(p))
	}
	base, length := int64(binary.BigEndian.Uint64(p)), int32(binary.BigEndian.Uint32(p[atLength:]))
	smallest := int32(headerSize - entryHead)
	switch magic := int8(p[atMagic]); magic {
	case magicMessageV0:
		smallest = smallestMessageV0
	case magicMessageV1:
		smallest = smallestMessageV1
	case magicRecordBatch:
	default:
		return corrupt("unknown format %d at offset %d", magic, base)
	}
	if base < 0 || base > maxOffset || length < smallest {
		return corrupt("length %d at offset %d", length, base)
	}
	return nil
}
