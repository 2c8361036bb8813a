package mirror

import (
	"crypto/sha256"
	"encoding/binary"
)

// Producer id ranges (protocol R1, R14). Clusters allocate ids from 0 upwards, so none of these is ever given to a
// client. A stored format.
const (
	// MirroredProducerIDs is where shifted ids of mirrored transactional producers begin: [2^61, 2^62).
	MirroredProducerIDs int64 = 1 << 61
	// IdentityProducerIDs is where the ids begin with which mirrord itself writes: [2^62, 2^63).
	IdentityProducerIDs int64 = 1 << 62
)

// MirroredProducer reports whether a producer id is that of mirrored transactions. By construction no other id is ever
// mirrored (R14), so a producer that begins to write to a promoted topic can never meet state that was mirrored.
func MirroredProducer(id int64) bool { return id >= MirroredProducerIDs && id < IdentityProducerIDs }

// Shifted ids are apart by slots (protocol R14): a native id becomes 2^61 + slot·2^56 + id. Two source clusters give out the
// same ids, so the copies of two of them in one topic have slots of their own.
const (
	slotBits = 56
	// Slots is how many there are.
	Slots = 32
)

// ShiftProducer gives the id under which a producer's transactions are written in a slot. One that was shifted before goes
// beyond, in the order of its own slots. False: there is no slot left for it, or no client has such an id.
func ShiftProducer(id int64, slot int8) (int64, bool) {
	switch {
	case id >= MirroredProducerIDs:
		id += (int64(slot) + 1) << slotBits
	case id < 0 || id >= 1<<slotBits:
		return 0, false
	default:
		id += MirroredProducerIDs + int64(slot)<<slotBits
	}
	return id, MirroredProducer(id)
}

// SlotOf is the slot of a shifted id.
func SlotOf(id int64) int8 { return int8((id - MirroredProducerIDs) >> slotBits) }

// IdentityID is the producer id with which mirrord writes the destination partitions of one source topic (protocol
// R1): 2^62 + a hash of mirror and source topic id, so that two mirrors or a recreated source never share one.
// generation counts up when an id's producer epochs are used up.
func IdentityID(mirrorName string, topicID TopicID, generation int32) int64 {
	h := sha256.New()
	h.Write([]byte(mirrorName))
	h.Write([]byte{0})
	h.Write(topicID[:])
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(generation)))
	return IdentityProducerIDs | int64(binary.BigEndian.Uint64(h.Sum(nil))>>2)
}
