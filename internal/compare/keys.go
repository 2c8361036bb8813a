package compare

import (
	"hash/maphash"
	"slices"
)

const (
	keyBytes   = 64 // that following a key takes
	keysListed = 10 // told by name
)

// superseded follows the keys of records that only one side of a compacted topic holds. Such a record is fine once a
// later one of its key shows on either side. It is fed in offset order.
//
// Keys are known by a hash under a random seed. When there are too many, it narrows to those of half the hashes and
// leaves the other half to another pass over the logs, so that memory stays bounded and no key goes unjudged.
type superseded struct {
	max     int
	seed    maphash.Seed
	slice   slice
	later   []slice // left to further passes
	pending map[uint64]lone
}

// slice is the hashes that end in certain bits.
type slice struct{ mask, want uint64 }

// lone is the latest record of a key, held by one side only.
type lone struct {
	offset    int64
	atSource  bool
	tombstone bool
	older     int64 // offset of a record of the key that the other side holds before it; −1: none seen
}

func newSuperseded(limit int) *superseded {
	return &superseded{max: limit, seed: maphash.MakeSeed(), pending: map[uint64]lone{}}
}

// again turns to what an earlier pass has left out; false: nothing.
func (k *superseded) again() bool {
	n := len(k.later)
	if n == 0 {
		return false
	}
	k.slice, k.later = k.later[n-1], k.later[:n-1]
	clear(k.pending)
	return true
}

// see takes the record that a consumer gets at an offset, from whichever side. alone says that the other side lacks it.
func (k *superseded) see(i *item, alone, atSource bool) {
	h := maphash.Bytes(k.seed, i.Key)
	if h&k.slice.mask != k.slice.want {
		return
	}
	delete(k.pending, h)
	if !alone {
		return
	}
	k.pending[h] = lone{i.Offset, atSource, i.Value == nil, -1}
	for len(k.pending) > k.max {
		k.narrow()
	}
}

// asks tells of which side holds would judge something.
func (k *superseded) asks() (ofSource, ofDestination bool) {
	for _, l := range k.pending {
		ofSource = ofSource || !l.atSource
		ofDestination = ofDestination || l.atSource && l.tombstone
	}
	return ofSource, ofDestination
}

// holds takes a record that a side still holds, after a whole pass. A cleaner removes the older records of a key first: had
// it removed the later one, this would have gone before.
func (k *superseded) holds(i *item, atSource bool) {
	if i.Key == nil {
		return
	}
	h := maphash.Bytes(k.seed, i.Key)
	if l, ok := k.pending[h]; ok && l.atSource != atSource && i.Offset < l.offset && (!l.tombstone || i.Value != nil) {
		l.older = i.Offset
		k.pending[h] = l
	}
}

func (k *superseded) narrow() {
	bit := k.slice.mask + 1
	k.slice.mask |= bit
	k.later = append(k.later, slice{k.slice.mask, k.slice.want | bit})
	for h := range k.pending {
		if h&bit != 0 {
			delete(k.pending, h)
		}
	}
}

// unmatched are the offsets of records that nothing supersedes.
type unmatched struct {
	lost []int64 // of the source's, which the destination lacks
	own  []int64 // of the destination's, which the source never had, for it still holds an older one of the key
	dead []int64 // of the destination's, whose tombstones are gone at the source (SPEC §8.9)
}

// unmatched judges what is left. A tombstone itself may be gone, with all before it: both sides drop them after a time.
func (k *superseded) unmatched() (u unmatched) {
	for _, l := range k.pending {
		switch {
		case l.tombstone && l.older < 0:
		case l.atSource:
			u.lost = append(u.lost, l.offset)
		case l.older >= 0:
			u.own = append(u.own, l.offset)
		default:
			u.dead = append(u.dead, l.offset)
		}
	}
	slices.Sort(u.lost)
	slices.Sort(u.own)
	slices.Sort(u.dead)
	return u
}
