package fetcher

import (
	"sync"
	"sync/atomic"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// part is one partition in the pool: its pipeline, and where its bytes come from and go to.
//
// Lock order: part.mu before the locks of thread and sink, which are leaves. No lock is held over I/O.
type part struct {
	key     mirror.Partition
	topic   string
	src     *source
	stats   *topicStats
	numbers numbers
	routeAt atomic.Int64 // unix ns: when to look for the leader

	mu     sync.Mutex // guards what follows
	target mirror.Target
	pipe   pipeline
	look   lookState
	turn   int  // rises with each start and stop: what was begun before is void
	unsure bool // a write or filler may have arrived without an answer
	plan   planner

	// the way in
	thread      *thread
	sourceID    mirror.TopicID // as metadata tells it; zero before Kafka 2.8
	asked       int64          // offset in the fetch session
	away        time.Time      // since when no leader answers; zero: one does
	awayTries   int
	awayErr     error
	routed      bool  // in the list of the router
	fetching    bool  // tail is worth fetching: not while seeding
	leftOut     bool  // left out of the fetch until the queue has shrunk
	severed     bool  // the source may be another one since it was fetched from: a broken connection, a moved leader
	lastEpoch   int32 // leader epoch of the last batch fetched, for divergence; −1: unknown
	sourceEpoch int32 // current leader epoch at the source; −1: unknown
	corrupt     int   // tries in a row that gave damaged bytes at corruptAt
	corruptAt   int64
	beyond      int64 // offset of a batch above the high watermark, and how often in a row
	beyonds     int
	active      bool  // counted in pool.active
	ahead       error // what the partition fails over once all that waits is stored

	tailing bool // its tail is being read alone
	began   bool // the lag clock has seen the source

	// the way out
	lanes     [2]*sink // the connections to the destination's leader
	current   int      // which of them is in use
	listed    bool     // in a sink's list
	checking  bool     // its log end is being read before an append
	touched   time.Time
	joinTo    int // bytes of a joined batch; halved when one was too large
	destEpoch int32
	fencedFor int32 // source leader epoch for which fencing was asked
	destID    mirror.TopicID
	seedTo    int64 // ≥ 0: fillers are written up to here, then trimmed
	mirrored  bool  // a look has found that the log holds no fillers of an unfinished seeding
	lostTo    int64 // losses below are counted already
	noTrim    time.Time
	// coordinator is the coordinator epoch of our markers (protocol R11).
	coordinator int32
	ids         []int64 // our producer ids by generation
	ownKnown    bool    // the destination lists our id among the producers
	blind       int16   // times that it refused sequence 0 of an id that it does not list
	told        bool    // that the destination begins later than the source
	trimRefused bool    // moving the log start was refused, and told
	trimming    bool    // the fillers of a seeding are being removed
	chunk       int64   // offsets of a filler batch; 0: the default
	failedAt    int32   // state epoch of the failure
	startDue    bool    // start once drained
	gone        bool    // not wanted any more
	closeTries  int
}

// numbers are what others read of a partition without its lock.
type numbers struct {
	sourceStart, sourceEnd atomic.Int64 // −1: unknown
	destStart, destEnd     atomic.Int64
	epoch, epochStart      atomic.Int64 // source leader epoch of the last mirrored record and where it began
	lag                    lagClock
}

func newPart(t mirror.Target, src *source, stats *topicStats) *part {
	p := &part{key: t.Partition, topic: t.Topic, src: src, stats: stats, target: t}
	for _, n := range []*atomic.Int64{&p.numbers.sourceStart, &p.numbers.sourceEnd, &p.numbers.destStart, &p.numbers.destEnd, &p.numbers.epoch, &p.numbers.epochStart} {
		n.Store(-1)
	}
	if t.Source.LeaderEpoch >= 0 {
		p.numbers.epoch.Store(int64(t.Source.LeaderEpoch))
		p.numbers.epochStart.Store(t.Source.Offset)
	}
	p.pipe.phase = closed
	p.lastEpoch, p.sourceEpoch, p.destEpoch, p.seedTo, p.lostTo, p.fencedFor = -1, -1, -1, -1, -1, -1
	return p
}

// sourceTP names the partition at the source.
func (p *part) sourceTP(epoch int32) kafka.TP {
	return kafka.TP{Topic: p.topic, TopicID: p.sourceID, Partition: p.key.Index, LeaderEpoch: epoch}
}

// fetchID is the topic id to fetch by.
func (p *part) fetchID() mirror.TopicID { return p.sourceID }

// destTP names the partition at the destination.
func (p *part) destTP(epoch int32) kafka.TP {
	return kafka.TP{Topic: p.topic, TopicID: p.target.DestinationID, Partition: p.key.Index, LeaderEpoch: epoch}
}

// offer puts the partition on the list of whoever can do its next step; p.mu is held. It returns the sink to poke.
func (p *part) offer() *sink {
	switch p.pipe.ready() {
	case send:
		if p.listed || p.checking {
			return nil
		}
		s := p.lane()
		p.listed = true
		s.list(p)
		return s
	case fillIn:
		p.src.pool.fills.offer(p)
	case ask:
		p.src.pool.inquire(p)
	case wait:
	}
	return nil
}

// lane picks the connection: large batches may go over the broker's second one. Only with nothing in flight may a
// partition change it.
func (p *part) lane() *sink {
	if p.pipe.flight.n == 0 {
		p.current = 0
		if p.pipe.queue.at(0).size() >= largeBatch {
			p.current = int(p.key.Index) & 1
		}
	}
	return p.lanes[p.current]
}

// wanted reports whether the partition is to be fetched now; p.mu is held.
func (p *part) wanted() bool {
	full := p.pipe.queue.bytes >= p.src.pool.share()
	p.leftOut = p.pipe.phase == running && p.fetching && full
	return p.pipe.phase == running && p.fetching && !full
}

// startable: nothing is in flight, and no seeding is being undone. What may still have arrived the first look finds out.
func (p *part) startable() bool { return p.pipe.phase == closed && p.pipe.idle() && p.seedTo < 0 }

// drained: nothing is in flight, nothing runs, and where the destination ends is known.
func (p *part) drained() bool {
	return p.startable() && !p.unsure
}

func (p *part) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}
