package fetcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// fillers writes what takes the place of holes, and replays transaction markers. Partitions that wait are served
// together: one request per destination broker holds the fillers of many. Long holes have a lane of their own, so that
// they never hold up short ones. A lane runs one goroutine while it has work.
type fillers struct {
	pool *Pool

	mu    sync.Mutex // guards what follows; a leaf
	lanes map[fillLane][]*filling
	busy  map[fillLane]bool
	txns  map[int32]*emptyTxns // by shard
}

type fillLane struct {
	broker       int32
	long         bool
	transactions bool
}

// filling is a fill at work: offsets below at are filled.
type filling struct {
	fill
	p  *part
	tp kafka.TP
	at int64
	// looked: the log's end was found to be at.
	looked      bool
	coordinator int32
	shard       int32
}

const (
	longHole   = 64     // offsets; more go into the lane for long ones
	firstChunk = 2_000  // markers in the first request of a long lane
	maxChunk   = 20_000 // and at most
	maxJobs    = 2_000  // partitions in one round
)

// offer takes over the hole at the head of a partition's queue; p.mu is held.
func (f *fillers) offer(p *part) {
	job := &filling{fill: p.pipe.takeFill(), p: p, tp: p.destTP(-1), coordinator: p.coordinator, shard: p.target.Shard}
	job.at = job.from
	job.looked = time.Since(p.touched) < idleLook
	f.add(job, fillLane{p.lanes[0].broker, job.to-job.from > longHole, !p.pipe.markers && !job.marker})
}

func (f *fillers) add(job *filling, lane fillLane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lanes[lane] = append(f.lanes[lane], job)
	if !f.busy[lane] {
		f.busy[lane] = true
		f.pool.workers.Go(func() { f.run(f.pool.ctx, lane) })
	}
}

// run serves a lane until nothing is left.
func (f *fillers) run(ctx context.Context, lane fillLane) {
	chunk := firstChunk
	for {
		f.mu.Lock()
		jobs := f.lanes[lane]
		if len(jobs) == 0 {
			delete(f.lanes, lane)
			delete(f.busy, lane)
			f.mu.Unlock()
			return
		}
		n := min(len(jobs), maxJobs)
		f.lanes[lane] = append([]*filling(nil), jobs[n:]...)
		f.mu.Unlock()
		began := time.Now()
		left := f.round(ctx, lane, jobs[:n:n], chunk)
		f.pool.log.Debug("fillers written", mirror.KeyBroker, lane.broker, mirror.KeyCount, n, "chunk", chunk, mirror.KeyDuration, time.Since(began))
		chunk = min(2*chunk, maxChunk)
		f.mu.Lock()
		f.lanes[lane] = append(f.lanes[lane], left...)
		f.mu.Unlock()
	}
}

// round serves each job once and returns those that are not finished.
func (f *fillers) round(ctx context.Context, lane fillLane, jobs []*filling, chunk int) (left []*filling) {
	ctx, cancel := context.WithTimeout(kafka.WithLease(ctx, f.pool.deps.Lease), 3*f.pool.cfg.RequestTimeout)
	defer cancel()
	jobs = f.wanted(jobs)
	if lane.transactions {
		jobs = affordable(jobs)
	}
	jobs = f.checkEnds(ctx, jobs)
	counts := share(jobs, chunk, lane.transactions)
	if len(jobs) == 0 {
		return nil
	}
	var outcomes map[*filling]error
	if lane.transactions {
		outcomes = f.byTransactions(ctx, jobs, counts)
	} else {
		outcomes = f.byMarkers(ctx, lane.broker, jobs, counts)
	}
	sinks := map[*sink]struct{}{}
	for _, j := range jobs {
		if f.settle(j, counts[j], outcomes[j], sinks) {
			left = append(left, j)
		}
	}
	for s := range sinks {
		s.poke()
	}
	return left
}

// wanted drops the jobs of partitions that were stopped.
func (f *fillers) wanted(jobs []*filling) (rest []*filling) {
	for _, j := range jobs {
		j.p.mu.Lock()
		if j.p.pipe.phase == running {
			rest = append(rest, j)
		} else {
			j.p.stopFilling(j)
		}
		j.p.mu.Unlock()
	}
	return rest
}

// stopFilling ends a fill between two requests; p.mu is held.
func (p *part) stopFilling(j *filling) {
	p.pipe.acked = j.at
	if p.pipe.unfilled() == look {
		p.lookNow(time.Now())
	}
	p.rest(time.Now())
}

// share says how many offsets of each job the next request fills. Markers in doubt before go alone (protocol R11).
func share(jobs []*filling, chunk int, transactions bool) map[*filling]int64 {
	counts := make(map[*filling]int64, len(jobs))
	each := int64(max(1, chunk/max(1, len(jobs))))
	if transactions {
		each = 100
	}
	for _, j := range jobs {
		n := min(j.to-j.at, each)
		if j.careful {
			n = 1
		}
		counts[j] = n
	}
	return counts
}

// checkEnds reads the log ends of partitions that were idle: fillers go only where the log ends (protocol R11).
func (f *fillers) checkEnds(ctx context.Context, jobs []*filling) (good []*filling) {
	var tps []kafka.TP
	for _, j := range jobs {
		if !j.looked {
			tps = append(tps, j.tp)
		}
	}
	if len(tps) == 0 {
		return jobs
	}
	ends := f.pool.deps.Destination.LogEnds(ctx, tps)
	for _, j := range jobs {
		if end := ends[j.tp]; j.looked || end.Err == nil && end.Offset == j.at {
			j.looked = true
			good = append(good, j)
			continue
		}
		j.p.unfilled(j, cause{err: endError(ends[j.tp], j.at)})
	}
	return good
}

// endError says why a log end is not as expected.
func endError(end kafka.OffsetResult, want int64) error {
	if end.Err != nil {
		return end.Err
	}
	return mirror.Errorf(mirror.Retriable, "the destination's log ends at offset %d, expected %d", end.Offset, want)
}

// byMarkers writes fillers and replayed markers of many partitions by one request.
func (f *fillers) byMarkers(ctx context.Context, broker int32, jobs []*filling, counts map[*filling]int64) map[*filling]error {
	outcomes := make(map[*filling]error, len(jobs))
	results, err := f.pool.deps.Destination.WriteMarkers(ctx, broker, markersOf(jobs, counts))
	var many []kafka.TP
	for _, j := range jobs {
		if outcomes[j] = err; err == nil {
			outcomes[j] = results[kafka.MarkerKey{ProducerID: j.owner.id, TopicPartition: j.tp.Name()}]
		}
		if outcomes[j] == nil && counts[j] > 1 {
			many = append(many, j.tp)
		}
	}
	if len(many) == 0 {
		return outcomes
	}
	// the broker answers once per producer id and partition, however many markers there were
	ends := f.pool.deps.Destination.LogEnds(ctx, many)
	for _, j := range jobs {
		if want := j.at + counts[j]; outcomes[j] == nil && counts[j] > 1 && (ends[j.tp].Err != nil || ends[j.tp].Offset != want) {
			outcomes[j] = endError(ends[j.tp], want)
		}
	}
	return outcomes
}

// markersOf groups the jobs' markers: one entry is one offset in each of its partitions, and entries are written in order.
func markersOf(jobs []*filling, counts map[*filling]int64) (markers []kafka.Marker) {
	type group struct {
		producer
		coordinator int32
		commit      bool
	}
	groups := map[group][]*filling{}
	var order []group
	for _, j := range jobs {
		g := group{j.owner, j.coordinator, j.commit}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], j)
	}
	for _, g := range order {
		members := groups[g]
		for k := int64(0); len(members) > 0; k++ {
			var tps []kafka.TP
			rest := members[:0:0]
			for _, j := range members {
				if counts[j] > k {
					tps, rest = append(tps, j.tp), append(rest, j)
				}
			}
			if members = rest; len(tps) > 0 {
				markers = append(markers, kafka.Marker{ProducerID: g.id, ProducerEpoch: g.epoch, CoordinatorEpoch: g.coordinator, Commit: g.commit, TPs: tps})
			}
		}
	}
	return markers
}

// settle takes the outcome of a round for one job and reports whether it goes on.
func (f *fillers) settle(j *filling, n int64, err error, sinks map[*sink]struct{}) bool {
	if err != nil {
		j.p.unfilled(j, fillCause(err, j))
		return false
	}
	p := j.p
	p.mu.Lock()
	defer p.mu.Unlock()
	j.at += n
	j.careful, p.pipe.careful = false, false
	p.touched = time.Now()
	p.pipe.acked = j.at
	p.look.tries = 0
	p.sawDest(-1, j.at)
	if j.at < j.to {
		return true
	}
	p.countFilled(j.fill)
	if p.pipe.filled(j.fill) == look {
		p.lookNow(p.touched)
	}
	p.rest(p.touched)
	if s := p.offer(); s != nil {
		sinks[s] = struct{}{}
	}
	return false
}

func (p *part) countFilled(f fill) {
	for why, n := range f.counts {
		p.stats.filledOffsets[why].Add(uint64(n))
	}
}

// unfilled ends a fill that did not succeed.
func (p *part) unfilled(j *filling, why cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pipe.acked = j.at
	p.look.cause.add(why)
	if !why.still && kafka.Classify(why.err) == mirror.Refused {
		p.pipe.filling = false
		if kafka.ClusterAuthorization(why.err) {
			why.err = mirror.Errorf(mirror.Refused, "%w", why.err).WithHint(markerHint(j))
		}
		p.fail(why.err)
		return
	}
	p.unsure = p.unsure || why.still
	if p.pipe.unfilled() == look {
		p.lookNow(time.Now())
	}
	p.rest(time.Now())
}

// markerHint is what lets a marker be written. A transaction that was copied as it is has no other end.
func markerHint(j *filling) string {
	if j.marker {
		return fmt.Sprintf("grant mirrord ALTER on the destination cluster: the transaction of producer id %d was copied as it is and "+
			"stays undecided without its marker", j.owner.id)
	}
	return "grant mirrord ALTER on the destination cluster, or set fillers: transactions"
}

// fillCause: after an ambiguous outcome a filler may still arrive, and no sequence stops it.
func fillCause(err error, j *filling) cause {
	c := cause{err: fmt.Errorf("fill offsets %d to %d: %w", j.at, j.to-1, err)}
	if kafka.AfterAppendDoubt(err) && !kafka.CoordinatorFenced(err) && !kafka.InvalidProducerEpoch(err) {
		c.still, c.marker = true, true
	}
	return c
}
