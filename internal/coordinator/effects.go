package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

const (
	// batchSize is how many partitions an effect gets at once.
	batchSize = 1000
	// alignBatch is smaller: one slow comparison holds up the partitions of its batch.
	alignBatch = 200
	// batchesAtOnce bounds the running batches of one effect and mirror.
	batchesAtOnce = 4
	// effectGrace is for how long an effect that fails is repeated before the partition is FAILED, from its first failure on: a
	// broker that has to create thousands of topics, that moves leaders or that has just been started, needs some seconds.
	effectGrace = 15 * time.Second
	effectPause = 100 * time.Millisecond // before the first repetition, doubled up to effectPauseMax
	// effectPauseMax keeps partitions of one batch together, since it is the same for all.
	effectPauseMax = time.Second
	// effectTime bounds effects on the destination. Comparing logs takes as long as it takes.
	effectTime = 2 * time.Minute
)

// batch is an effect under way for some partitions.
type batch struct {
	effect effect
	mirror string
	cancel context.CancelFunc
	users  int // partitions that still wait for it
}

// leave is called for a partition that does not wait for the batch any more. What nobody waits for is cancelled.
func (b *batch) leave() {
	if b.users--; b.users == 0 {
		b.cancel()
	}
}

// writes reports whether an effect changes the destination: such a one is waited for before another begins.
func (e effect) writes() bool { return e == fence || e == promote }

// want notes the effect that a partition's state asks for.
func (r *runner) want(s *shard, t *part, f facts, now time.Time) {
	e := f.effect()
	if e == noEffect || e == drain || t.running != nil || now.Before(t.again) { // poll sees what has drained
		return
	}
	entry := r.index.find(t.partition.Mirror, t.topic)
	if e == align && (entry.in.resolved == nil || entry.in.refused || entry.topic.DestinationID.IsZero() || entry.topic.Unready) {
		return
	}
	target := r.target(s, entry, f.state, false)
	if report, ok := r.reports[t.partition]; ok && report.SourceEpoch.LeaderEpoch > target.Source.LeaderEpoch {
		target.Source = report.SourceEpoch // not recorded yet
	}
	r.wanted = append(r.wanted, want{t, e, target})
}

// want is a partition that waits for an effect to begin.
type want struct {
	part   *part
	effect effect
	target mirror.Target
}

// launch begins effects for the partitions that wait, batched over all shards.
func (r *runner) launch() {
	wanted := r.wanted
	r.wanted = nil
	slices.SortFunc(wanted, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.effect, b.effect), cmp.Compare(a.target.Partition.Mirror, b.target.Partition.Mirror),
			cmp.Compare(a.target.Topic, b.target.Topic), cmp.Compare(a.target.Index, b.target.Index))
	})
	for len(wanted) > 0 {
		first, size := wanted[0], batchSize
		if first.effect == align {
			size = alignBatch
		}
		n := 1
		for n < len(wanted) && n < size && wanted[n].effect == first.effect &&
			wanted[n].target.Partition.Mirror == first.target.Partition.Mirror {
			n++
		}
		if r.running(first.effect, first.target.Partition.Mirror) < batchesAtOnce {
			r.begin(first.effect, wanted[:n])
		}
		wanted = wanted[n:]
	}
}

// running counts batches. A source that does not answer holds up its own mirror only.
func (r *runner) running(e effect, mirrorName string) (n int) {
	for b := range r.batches {
		if b.effect == e && b.mirror == mirrorName {
			n++
		}
	}
	return n
}

// begin starts a batch.
func (r *runner) begin(e effect, wanted []want) {
	ctx, cancel := context.WithCancel(kafka.WithLease(r.ctx, r.Lease))
	if e != align {
		ctx, cancel = context.WithTimeoutCause(kafka.WithLease(r.ctx, r.Lease), effectTime,
			fmt.Errorf("not done within %v", effectTime))
	}
	b := &batch{effect: e, mirror: wanted[0].target.Partition.Mirror, cancel: cancel, users: len(wanted)}
	r.batches[b] = true
	parts, targets := make([]*part, len(wanted)), make([]mirror.Target, len(wanted))
	for i, w := range wanted {
		w.part.running = b
		parts[i], targets[i] = w.part, w.target
	}
	r.started.Go(func() {
		defer cancel()
		results := r.perform(ctx, e, targets)
		r.box.post(func() { r.finished(b, parts, targets, results) })
	})
}

// perform runs on a goroutine of its own.
func (r *runner) perform(ctx context.Context, e effect, targets []mirror.Target) []happening {
	if e == locate {
		return r.locate(ctx, targets)
	}
	var ends []int64
	compared := func(ctx context.Context, targets []mirror.Target) (errs []error) {
		ends, errs = r.deps.Align(ctx, targets)
		return errs
	}
	served := map[effect]struct {
		run  Effect
		done what
	}{align: {compared, aligned}, fence: {r.deps.Fence, fenced}, promote: {r.deps.Promote, promoted}}[e]
	results := make([]happening, len(targets))
	errs := served.run(ctx, targets)
	for i := range targets {
		switch {
		case i >= len(errs):
			results[i] = happening{what: failed, err: fmt.Errorf("no result for partition %d of %d", i+1, len(targets))}
		case errs[i] == nil:
			results[i] = happening{what: served.done}
			if i < len(ends) {
				results[i].position.Offset = ends[i]
			}
		default:
			results[i] = happening{what: failed, err: errs[i]}
		}
	}
	return results
}

// restTime is how long a log end has to stay where it is before it is taken for how far was mirrored, where a
// predecessor's last requests may still arrive: requests outlive their connections, but not for long.
const restTime = 2 * time.Second

// rested reads log ends, those of shards with such a predecessor until they do not move any more.
func (r *runner) rested(ctx context.Context, targets []mirror.Target, tps []kafka.TP) map[kafka.TP]kafka.OffsetResult {
	ends := r.deps.Cluster.LogEnds(ctx, tps)
	var restless []kafka.TP
	for i, t := range targets {
		if t.PredecessorAlive {
			restless = append(restless, tps[i])
		}
	}
	for len(restless) > 0 && sleep(ctx, restTime) {
		again := r.deps.Cluster.LogEnds(ctx, restless)
		restless = slices.DeleteFunc(restless, func(tp kafka.TP) bool {
			before := ends[tp]
			ends[tp] = again[tp]
			return again[tp].Err != nil || before.Err == nil && again[tp].Offset == before.Offset
		})
	}
	return ends
}

// locate reads the log ends of drained partitions of which the data path does not know how far they were mirrored. The
// fillers of an unfinished seeding are none of what was mirrored, and must not be there once a partition is opened.
func (r *runner) locate(ctx context.Context, targets []mirror.Target) []happening {
	tps := make([]kafka.TP, len(targets))
	for i, t := range targets {
		tps[i] = kafka.TP{Topic: t.Topic, TopicID: t.DestinationID, Partition: t.Index, LeaderEpoch: -1}
	}
	ends := r.rested(ctx, targets, tps)
	swept := r.deps.Sweep(ctx, targets)
	ranges := r.deps.Cluster.Ranges(ctx, tps)
	results := make([]happening, len(targets))
	for i, t := range targets {
		end, at := ends[tps[i]], ranges[tps[i]]
		switch err := cmp.Or(swept[i], end.Err, at.Err); {
		case kafka.UnknownTopic(err):
			results[i] = happening{what: drained, position: mirror.NoPosition}
		case err != nil:
			results[i] = happening{what: failed, err: err}
		case at.LogStart > 0 && at.LogStart == end.Offset && (t.Source.LeaderEpoch < 0 || t.Source.Offset >= end.Offset): // fillers only
			results[i] = happening{what: drained, position: mirror.NoPosition}
		default:
			results[i] = happening{what: drained, position: mirror.Position{LeaderEpoch: t.Source.LeaderEpoch, Offset: end.Offset}}
		}
	}
	return results
}

// finished takes in what a batch did.
func (r *runner) finished(b *batch, parts []*part, targets []mirror.Target, results []happening) {
	delete(r.batches, b)
	now := time.Now()
	for i, t := range parts {
		if t.running != b {
			continue // its state has moved on meanwhile
		}
		t.running = nil
		h := results[i]
		if b.effect == promote && h.what == failed && mirror.KindOf(h.err) == mirror.DestinationGone {
			r.log.Warn("nothing left to promote", mirror.KeyMirror, b.mirror, mirror.KeyTopic, targets[i].Topic,
				mirror.KeyPartition, targets[i].Index, mirror.KeyErr, h.err)
			h = happening{what: promoted}
		}
		if r.partOf(t.partition) == t && !t.repeats(targets[i], h, now) {
			r.happened(targets[i], h)
		}
	}
}

// repeats reports whether a failed effect is to be repeated before it counts as a failure.
func (t *part) repeats(of mirror.Target, h happening, now time.Time) bool {
	if h.what != failed || mirror.KindOf(h.err) != mirror.Retriable || of.StateEpoch != t.epoch {
		return false
	}
	if t.repeated == 0 {
		t.refused = now
	}
	if now.Sub(t.refused) > effectGrace {
		return false
	}
	t.again = now.Add(min(effectPause<<min(t.repeated, 10), effectPauseMax))
	t.repeated++
	return true
}
