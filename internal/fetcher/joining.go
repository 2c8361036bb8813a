package fetcher

import (
	"sync"

	"mirrord/internal/recordbatch"
)

// joining makes one batch of small uncompressed neighbours (SPEC §8.7). One per sink.
type joining struct {
	budget *budget
	pool   sync.Pool // of *recordbatch.Joiner
}

// smallBatch is up to where joining pays: beyond, the broker's cost per batch no longer shows.
const smallBatch = 64 << 10

// join fills w from the head of p's queue and pops what it took; false: nothing to join. Only what waits is joined.
func (j *joining) join(p *pipeline, w *write) bool {
	if p.queue.len() < 2 || !joinable(p.queue.at(0)) || !joinable(p.queue.at(1)) || p.queue.at(0).owner != p.queue.at(1).owner {
		return false
	}
	jn, _ := j.pool.Get().(*recordbatch.Joiner)
	if jn == nil {
		jn = &recordbatch.Joiner{}
	}
	jn.Plain = p.queue.at(0).owner == producer{}
	jn.Reset(p.joinTo)
	n := 0
	for ; n < p.queue.len(); n++ {
		it := p.queue.at(n)
		if !joinable(it) || it.owner != p.queue.at(0).owner || !add(jn, it) {
			break
		}
	}
	if n < 2 {
		j.pool.Put(jn)
		return false
	}
	batch := jn.Bytes()
	w.batch, w.records, w.maxTime, w.joined = batch, jn.Count(), jn.MaxTimestamp(), true
	w.hold = newHold(j.budget, int64(cap(batch)), func() { j.pool.Put(jn) })
	for range n {
		it := p.queue.at(0)
		w.to, w.epoch = it.to, max(w.epoch, it.epoch)
		it.hold.drop()
		p.queue.pop()
	}
	return true
}

func joinable(i *item) bool {
	return i.kind == data && i.batch.Codec() == recordbatch.CodecNone && len(i.batch) <= smallBatch
}

// add joins an item: a batch as fetched tells its own offset, one that was recoded does not.
func add(j *recordbatch.Joiner, i *item) bool {
	if i.batch.BaseOffset() == i.from {
		return j.Add(i.batch)
	}
	return j.AddRun(recordbatch.Run{Base: i.from, Count: i.batch.Count(), Batch: i.batch, MaxTimestamp: i.maxTime})
}
