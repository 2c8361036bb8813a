package fetcher

import (
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// kind is what becomes of a stretch of offsets.
type kind uint8

const (
	data   kind = iota // a batch, written under an identity
	hole               // offsets that cannot be copied: invisible fillers take their place
	ending             // a transaction marker that is replayed (exact mode)
	seeds              // compressed fillers below the source's log start (protocol R13)
)

// reason tells why offsets are filled; it is the value of a metric label.
type reason uint8

const (
	compacted reason = iota // records that the source has removed
	control                 // markers that are not replayed
	aborted                 // data of aborted transactions
	lost                    // records that expired before they were copied
	reasons                 // their number
)

var reasonNames = [reasons]string{"compacted", "control", "aborted", "lost"}

// producer is a producer id and epoch at the destination. The zero value stands for the partition's own identity.
type producer struct {
	id    int64
	epoch int16
}

// item is one stretch of offsets [from, to) on its way. Items of a partition follow each other without a gap. An item
// owns one reference to its hold until it is written or dropped.
type item struct {
	kind     kind
	reason   reason // of a hole
	commit   bool   // of an ending
	from, to int64
	batch    recordbatch.Batch // data only: not patched yet
	hold     *hold
	maxTime  int64 // largest record time, ms; −1: none
	arrived  int64 // when it was fetched, ns of the process clock
	epoch    int32 // source leader epoch; −1: unknown
	owner    producer
}

func (i *item) size() int64 { return int64(len(i.batch)) }

// shiftProducer gives the id under which a source producer's transactions are written (protocol R14).
func shiftProducer(id int64, slot int8) (int64, error) {
	if id < 0 {
		return 0, mirror.Errorf(mirror.Refused, "transactional batch without a producer id")
	}
	shifted, ok := mirror.ShiftProducer(id, slot)
	if !ok {
		return 0, mirror.Errorf(mirror.Refused, "producer id %d cannot be shifted: its log was mirrored too often", id).
			WithHint("mirror the topic with transactions: committed")
	}
	return shifted, nil
}
