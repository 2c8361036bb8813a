package fetcher

import (
	"context"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// looking is one look at the destination and the source for many partitions of one mirror at once.
type looking struct {
	pool  *Pool
	src   *source
	parts []*part
	turns map[*part]int // the look is void once a part's turn is another one

	source *kafka.Cluster
	at     map[*part]kafka.ResumePoint
	ranges map[*part]kafka.RangeResult
}

// look reads where each partition may go on (protocol R3, R6) and lets it go on.
func (pool *Pool) look(ctx context.Context, src *source, parts []*part) {
	defer pool.poke()
	l := &looking{pool: pool, src: src, turns: make(map[*part]int, len(parts))}
	var still []*part
	for _, p := range parts {
		p.mu.Lock()
		l.turns[p] = p.turn
		if p.pipe.phase == closed {
			still = append(still, p)
		} else {
			l.parts = append(l.parts, p)
		}
		p.mu.Unlock()
	}
	pool.lookAtStill(ctx, still)
	if len(l.parts) == 0 {
		return
	}
	if err := l.read(ctx); err != nil {
		l.each(func(p *part, now time.Time) { p.lookAgain(now, err) })
		return
	}
	var compare []*part
	for _, p := range l.parts {
		large := l.askedTooLarge(ctx, p)
		fillers := l.holdsFillers(ctx, p)
		unready := l.readyToSeed(ctx, p, fillers)
		p.mu.Lock()
		now := time.Now()
		switch {
		case l.turns[p] != p.turn: // stopped, and perhaps started again, meanwhile
		case unready != nil:
			p.look.under = false
			p.lookAgain(now, unready)
		case l.decide(p, now, large, fillers):
			compare = append(compare, p)
		}
		p.mu.Unlock()
	}
	l.compare(ctx, compare)
}

// each ends the look for all partitions.
func (l *looking) each(do func(*part, time.Time)) {
	now := time.Now()
	for _, p := range l.parts {
		p.mu.Lock()
		if l.turns[p] == p.turn {
			p.look.under = false
			do(p, now)
		}
		p.mu.Unlock()
	}
}

// read asks both sides, the destination first.
func (l *looking) read(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*l.pool.cfg.RequestTimeout/2)
	defer cancel()
	names := map[*part]kafka.TP{}
	topics := map[string]struct{}{}
	for _, p := range l.parts {
		p.mu.Lock()
		names[p] = p.destTP(-1)
		p.mu.Unlock()
		topics[p.topic] = struct{}{}
	}
	tps := make([]kafka.TP, 0, len(names))
	for _, tp := range names {
		tps = append(tps, tp)
	}
	if err := l.pool.initFillers(ctx, l.src, l.parts); err != nil {
		return fmt.Errorf("take over fillers: %w", err)
	}
	found := l.pool.deps.Destination.Resume(ctx, tps)
	l.at, l.ranges = map[*part]kafka.ResumePoint{}, map[*part]kafka.RangeResult{}
	for p, tp := range names {
		l.at[p] = found[tp]
	}
	if l.source, err = l.src.cluster(); err != nil {
		return err
	}
	if err = l.src.topology.refresh(ctx, l.source, keys(topics), time.Now().Add(-time.Second)); err != nil {
		return err
	}
	l.readSource(ctx)
	return nil
}

func (l *looking) readSource(ctx context.Context) {
	names := map[*part]kafka.TP{}
	var tps []kafka.TP
	for _, p := range l.parts {
		topic, at, _ := l.src.topology.find(p.topic, p.key.Index)
		p.mu.Lock()
		if p.sameSource(topic.ID) {
			p.sourceID = topic.ID
			if at.LeaderEpoch > p.sourceEpoch && p.sourceEpoch >= 0 {
				p.look.cause.source = true // protocol R6: another leader at the source meanwhile
				p.sourceMoved(at.LeaderEpoch)
			}
			if at.LeaderEpoch >= 0 {
				p.sourceEpoch = at.LeaderEpoch
			}
			names[p] = p.sourceTP(-1)
			tps = append(tps, names[p])
		} else {
			l.ranges[p] = kafka.RangeResult{Err: errOtherTopic}
		}
		p.mu.Unlock()
	}
	found := l.source.Ranges(ctx, tps)
	for p, tp := range names {
		l.ranges[p] = found[tp]
	}
}

// askedTooLarge has the destination's limit looked at, where a batch was too large; no lock is held.
func (l *looking) askedTooLarge(ctx context.Context, p *part) error {
	p.mu.Lock()
	size, t, seeding := p.look.cause.tooLarge, p.target, p.seedTo >= 0
	p.mu.Unlock()
	if size == 0 || seeding {
		return nil
	}
	err := error(mirror.Errorf(mirror.Refused, "the destination admits no batch of %d bytes", size))
	if l.pool.deps.TooLarge != nil {
		if err = l.pool.deps.TooLarge(ctx, t, size); err == nil {
			return nil
		}
	}
	return mirror.Errorf(mirror.Refused, "batch of %d bytes at offset %d is larger than the destination topic's max.message.bytes: %w", size, l.at[p].LogEnd, err).
		WithHint(fmt.Sprintf("set max.message.bytes of the destination topic to %d or more", size))
}

// holdsFillers reports whether all that the destination has are fillers of an unfinished seeding (protocol R13).
func (l *looking) holdsFillers(ctx context.Context, p *part) bool {
	at, r := l.at[p], l.ranges[p]
	p.mu.Lock()
	entry, tp := p.look.entry, p.destTP(-1)
	p.mu.Unlock()
	if at.Err != nil || r.Err != nil || at.LogStart == at.LogEnd || at.LogEnd > r.LogStart || !entry {
		return p.isSeeding()
	}
	f, err := l.pool.deps.Destination.Read(ctx, tp, at.LogStart, kafka.ReadOptions{})
	if err != nil {
		return false
	}
	b, _, err := recordbatch.Cut(f.Bytes)
	return err == nil && recordbatch.IsFiller(b, kafka.Codec)
}

// readyToSeed prepares the topic of a partition that decide is going to seed.
func (l *looking) readyToSeed(ctx context.Context, p *part, fillers bool) error {
	at, r := l.at[p], l.ranges[p]
	if at.Err != nil || r.Err != nil || at.LogEnd >= r.LogStart || !fillers && at.LogEnd > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(kafka.WithLease(ctx, l.pool.deps.Lease), 2*l.pool.cfg.RequestTimeout)
	defer cancel()
	p.mu.Lock()
	tp := p.destTP(-1)
	p.mu.Unlock()
	return l.pool.suspendCompaction(ctx, tp)
}

func (p *part) isSeeding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seedTo >= 0
}

// decide ends a partition's look, unless both logs have to be compared first: then it says true. p.mu is held.
func (l *looking) decide(p *part, now time.Time, large error, fillers bool) (compare bool) {
	at, r := l.at[p], l.ranges[p]
	p.look.under = false
	switch {
	case at.Err != nil:
		p.destinationFailed(now, at.Err)
		return false
	case large != nil:
		p.fail(large)
		return false
	case r.Err != nil:
		p.sourceFailed(now, r.Err)
		return false
	case !p.quiet(now, at.LogEnd), !p.succeeded(now, at):
		return false
	}
	p.sawSource(r.LogStart, r.HighWatermark, now)
	p.sawDest(at.LogStart, at.LogEnd)
	if r.LogStart > at.LogEnd || fillers && at.LogStart < at.LogEnd && at.LogEnd <= r.LogStart {
		p.startAbove(now, at, r.LogStart, fillers)
		return false
	}
	switch {
	case at.LogEnd < p.pipe.acked && !p.look.entry:
		l.pool.log.Error("destination log end went back", p.attrs(mirror.KeyFrom, p.pipe.acked, mirror.KeyTo, at.LogEnd)...)
	case p.look.entry, p.look.cause.source, at.LogEnd > p.pipe.sent, at.LogEnd > r.HighWatermark:
	default:
		p.goOn(now, at)
		return false
	}
	if at.LogStart == at.LogEnd && at.LogEnd <= r.HighWatermark { // nothing to compare
		p.goOn(now, at)
		return false
	}
	p.look.under = true
	return true
}

// lookAtStill looks at partitions that were stopped while it was open what had arrived: where they ended is all that
// matters, and no source is needed for it.
func (pool *Pool) lookAtStill(ctx context.Context, parts []*part) {
	if len(parts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pool.cfg.RequestTimeout)
	defer cancel()
	names := map[*part]kafka.TP{}
	var tps []kafka.TP
	for _, p := range parts {
		p.mu.Lock()
		names[p] = p.destTP(-1)
		p.mu.Unlock()
		tps = append(tps, names[p])
	}
	ends := pool.deps.Destination.LogEnds(ctx, tps)
	now := time.Now()
	for _, p := range parts {
		p.mu.Lock()
		p.look.under = false
		switch end := ends[names[p]]; {
		case p.pipe.phase != closed || !p.unsure:
		case end.Err != nil:
			p.lookAgain(now, end.Err)
		default:
			p.numbers.destEnd.Store(end.Offset)
			p.unsure = !p.quiet(now, end.Offset)
		}
		p.mu.Unlock()
	}
}

// destinationFailed: the destination could not be read; p.mu is held.
func (p *part) destinationFailed(now time.Time, err error) {
	if kafka.UnknownTopic(err) {
		if !p.look.since.IsZero() && now.Sub(p.look.since) > maxBackoff {
			p.fail(mirror.Errorf(mirror.DestinationGone, "the destination topic was deleted or recreated by somebody else: %w", err).
				WithHint("recover the topic to have it created and copied again"))
			return
		}
	}
	p.lookAgain(now, err)
}

// sourceFailed: the source could not be read; p.mu is held. A topic that is gone is the metadata manager's finding.
func (p *part) sourceFailed(now time.Time, err error) {
	if kafka.UnknownTopic(err) || mirror.KindOf(err) == mirror.SourceGone {
		p.look.since = time.Time{}
	}
	p.lookAgain(now, err)
}

// quiet waits, after doubt about something that no sequence protects, until the log end has stood still (protocol R11).
func (p *part) quiet(now time.Time, end int64) bool {
	if !p.look.cause.still {
		return true
	}
	if p.look.quietSince.IsZero() || p.look.quietEnd != end {
		p.look.quietEnd, p.look.quietSince = end, now
	}
	if left := quiesce - now.Sub(p.look.quietSince); left > 0 {
		p.lookAt(now.Add(min(left, time.Second)))
		return false
	}
	return true
}

// succeeded waits out a predecessor whose writes the broker could not tell from ours (protocol R16).
func (p *part) succeeded(now time.Time, at kafka.ResumePoint) bool {
	if !p.look.entry || !p.target.PredecessorAlive || at.LogEnd == at.LogStart {
		return true
	}
	if _, known, _ := p.identity(at.Producers); known || !now.Before(p.look.wait) {
		return true
	}
	p.lookAt(p.look.wait)
	return false
}

// goOn resumes the pipeline at the destination's log end; p.mu is held.
func (p *part) goOn(now time.Time, at kafka.ResumePoint) {
	pl := p.place(at)
	p.lastEpoch = -1
	if at.LogEnd == p.pipe.acked && !p.look.cause.source {
		p.lastEpoch = int32(p.numbers.epoch.Load())
	}
	if at.LogEnd > p.pipe.acked {
		p.look.tries = 0
	}
	p.pipe.resume(pl)
	p.pipe.joinTo = p.joinTo
	p.destEpoch, p.destID = at.LeaderEpoch, p.target.DestinationID
	p.lanes = p.src.pool.lanes(at.Broker)
	p.touched = now
	p.sawDest(at.LogStart, at.LogEnd)
	p.look.cause, p.look.entry, p.look.since, p.look.quietSince = cause{}, false, time.Time{}, time.Time{}
	p.seedTo, p.unsure = -1, false
	p.fetching = true
	p.checking = false
	if p.thread != nil {
		p.thread.touch(p)
		return
	}
	p.routeAt.Store(now.UnixNano())
	p.src.route(p)
}

// place is the resume point at a log end; p.mu is held.
func (p *part) place(at kafka.ResumePoint) place {
	pl := place{end: at.LogEnd, careful: p.look.cause.marker}
	var coordinator int32
	pl.own, p.ownKnown, coordinator = p.identity(at.Producers)
	if p.plan.exact {
		var highest int32
		pl.others, highest = counters(at.Producers)
		coordinator = max(coordinator, highest)
	}
	// Protocol R11: the claim in the high bits, the attempt in the low ones; only a marker in doubt makes a new attempt.
	p.coordinator = max(p.coordinator, p.target.Claim<<attemptBits, coordinator)
	if p.look.cause.marker {
		p.coordinator++
	}
	return pl
}

const attemptBits = 11

// identity is under what the next own batch goes (protocol R1, R2), whether the broker knows the id, and the highest
// coordinator epoch that it knows of it.
func (p *part) identity(producers []kafka.Producer) (own recordbatch.Identity, known bool, coordinator int32) {
	own.ProducerID, coordinator = p.ownID(0), -1
	for g := range generations {
		id := p.ownID(g)
		for _, pr := range producers {
			if pr.ID == id {
				own = recordbatch.Identity{ProducerID: id, ProducerEpoch: pr.Epoch, Sequence: nextSequence(pr.LastSequence)}
				known, coordinator = true, pr.CoordinatorEpoch
				if pr.Epoch >= lastEpoch { // used up: the next id (protocol R10)
					own, known, coordinator = recordbatch.Identity{ProducerID: p.ownID(g + 1)}, false, -1
				}
			}
		}
	}
	if !known && p.blind > 0 { // the broker has refused sequence 0 of an id that it does not list: a higher epoch begins at 0
		own.ProducerEpoch = p.blind
	}
	return own, known, coordinator
}

const (
	generations = 8      // of ids that are looked for
	lastEpoch   = 32_700 // near the largest producer epoch
)

func (p *part) ownID(generation int) int64 {
	for len(p.ids) <= generation {
		p.ids = append(p.ids, mirror.IdentityID(p.key.Mirror, p.key.TopicID, int32(len(p.ids))))
	}
	return p.ids[generation]
}

// nextSequence follows the last one; −1 (none) is followed by 0.
func nextSequence(last int32) int32 { return int32((int64(last) + 1) & 0x7fffffff) }

// counters are the places of the shifted ids of mirrored transactions, and their highest coordinator epoch.
func counters(producers []kafka.Producer) (m map[int64]counter, coordinator int32) {
	m, coordinator = map[int64]counter{}, -1
	for _, pr := range producers {
		if pr.ID >= mirror.MirroredProducerIDs && pr.ID < mirror.IdentityProducerIDs {
			m[pr.ID] = counter{pr.Epoch, nextSequence(pr.LastSequence)}
			coordinator = max(coordinator, pr.CoordinatorEpoch)
		}
	}
	return m, coordinator
}

// compare lets those partitions go on whose logs agree.
func (l *looking) compare(ctx context.Context, parts []*part) {
	if len(parts) == 0 {
		return
	}
	targets := make([]mirror.Target, len(parts))
	for i, p := range parts {
		p.mu.Lock()
		targets[i] = p.target
		p.mu.Unlock()
	}
	results := l.pool.deps.Tail(ctx, l.source, l.pool.deps.Destination, targets)
	now := time.Now()
	for i, p := range parts {
		p.mu.Lock()
		if l.turns[p] == p.turn {
			p.look.under = false
		}
		switch err := results[i].Err; {
		case l.turns[p] != p.turn || p.pipe.phase != probing:
		case err == nil:
			p.goOn(now, l.at[p])
		case mirror.KindOf(err).Retryable():
			p.lookAgain(now, err)
		default:
			p.fail(l.disagreement(p, err))
		}
		p.mu.Unlock()
	}
}

// disagreement says what it means that the logs differ; p.mu is held.
func (l *looking) disagreement(p *part, err error) error {
	at := l.at[p]
	kind := mirror.KindOf(err)
	if p.look.cause.source && p.look.cause.err != nil {
		return mirror.Errorf(kind, "%w: %w", p.look.cause.err, err)
	}
	if !p.look.entry && at.LogEnd > p.pipe.sent {
		return mirror.Errorf(mirror.IdentityBroken, "the destination's log ends at offset %d, expected %d: somebody else has written into the destination topic: %w",
			at.LogEnd, p.pipe.sent, err)
	}
	return mirror.Errorf(kind, "the destination's log ends at offset %d: %w", at.LogEnd, err)
}
