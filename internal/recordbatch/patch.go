package recordbatch

import "encoding/binary"

// Identity is with what mirrord writes a batch: the producer fields, and the sequence of the batch's first record.
type Identity struct {
	ProducerID    int64
	ProducerEpoch int16
	Sequence      int32
}

// Patch makes a v2 batch ready to be produced under id, in place: base offset 0 and leader epoch −1 as producers send
// them, and the producer fields of id. The transactional flag stays only if keepTransactional; all else passes, the time
// at which the cleaner may drop tombstones included. Payload bytes are neither read nor changed.
//
// Invariant: the CRC is derived from the stored one and the changed bytes, never computed over the payload. A batch that
// was damaged before is damaged after.
func (b Batch) Patch(id Identity, keepTransactional bool) {
	_ = b[headerSize-1]
	binary.BigEndian.PutUint64(b, 0)
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], ^uint32(0))

	var old [atCount - atAttributes]byte
	copy(old[:], b[atAttributes:])
	attributes := b.Attributes()
	if !keepTransactional {
		attributes &^= transactional
	}
	binary.BigEndian.PutUint16(b[atAttributes:], attributes)
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(id.ProducerID))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(id.ProducerEpoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(id.Sequence))

	register := uint32(0)
	for i, was := range old {
		register = castagnoli[byte(register)^was^b[atAttributes+i]] ^ register>>8
	}
	change := advance(register, len(b)-atCount)
	binary.BigEndian.PutUint32(b[atCRC:], binary.BigEndian.Uint32(b[atCRC:])^change)
}
