package fetcher

import (
	"slices"

	"mirrord/internal/recordbatch"
)

// maxFlight is how many batches of a partition may be unanswered: as many as a broker remembers of a producer.
const maxFlight = 5

// write is one batch of a partition that is ready to leave, or on its way.
type write struct {
	from, to int64
	batch    recordbatch.Batch // patched
	hold     *hold
	owner    producer // under which it is written
	records  int32    // of the source; 0 for seeds
	maxTime  int64
	arrived  int64
	epoch    int32 // source leader epoch
	seed     bool
	joined   bool // of several batches
}

// flight holds a partition's unanswered writes, oldest first.
type flight struct {
	writes [maxFlight]write
	first  int
	n      int
}

func (f *flight) push(w write) {
	f.writes[(f.first+f.n)%maxFlight] = w
	f.n++
}

func (f *flight) pop() write {
	w := f.writes[f.first]
	f.writes[f.first] = write{}
	f.first = (f.first + 1) % maxFlight
	f.n--
	return w
}

// newest is the write sent last; there must be one.
func (f *flight) newest() *write { return &f.writes[(f.first+f.n-1)%maxFlight] }

// queue holds a partition's items that wait, oldest first.
type queue struct {
	items []item
	first int
	bytes int64
}

func (q *queue) len() int { return len(q.items) - q.first }

func (q *queue) at(i int) *item { return &q.items[q.first+i] }

func (q *queue) push(items []item) {
	for i := range items {
		q.bytes += items[i].size()
	}
	q.items = append(q.items, items...)
}

// pop forgets the oldest item; its hold is the caller's now.
func (q *queue) pop() {
	q.bytes -= q.items[q.first].size()
	q.items[q.first] = item{}
	q.first++
	switch {
	case q.first == len(q.items):
		q.first = 0
		if cap(q.items) > 1024 {
			q.items = nil
		}
		q.items = q.items[:0]
	case q.first > 256 && q.first > len(q.items)/2:
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
}

// replaceFirst puts items, of the same size together, in the place of the oldest one.
func (q *queue) replaceFirst(items []item) {
	q.items = slices.Replace(q.items, q.first, q.first+1, items...)
}

// drop forgets everything.
func (q *queue) drop() {
	for i := range q.len() {
		q.at(i).hold.drop()
	}
	*q = queue{}
}
