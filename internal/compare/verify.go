package compare

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// How Verify reads: several partitions at once, large answers, and, without Full, the ends of a log and some windows
// between.
const (
	verifyParallel = 8        // at most
	verifyMemory   = 64 << 20 // that each takes: half of it for keys, the other for answers and the batches in them
	verifyBytes    = 2 << 20
	wholeBelow     = 20_000 // offsets; a shorter log is read whole anyway
	endWindow      = 2_000
	sampleWindow   = 500
	sampleWindows  = 16
)

// Verify compares both sides of topics, one Row a partition, sorted by topic and partition. What a partition's Row
// cannot say, since a log could not be read, is in its Detail with Equal false. The error is about topics as a whole.
// SPEC §3 verify, P1, §8.9.
func Verify(ctx context.Context, src, dst *kafka.Cluster, mirrorName string, topics []string, o Options) ([]Row, error) {
	s, err := src.Metadata(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("read the source's topics: %w", err)
	}
	d, err := dst.Metadata(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("read the destination's topics: %w", err)
	}
	v := &verification{src: clusterSide{src}, dst: clusterSide{dst}, codec: kafka.Codec, mirror: mirrorName, options: o}
	for _, topic := range topics {
		v.add(topic, s.Topics[topic], d.Topics[topic])
	}
	return v.run(ctx), ctx.Err()
}

// verification is one Verify at work.
type verification struct {
	src, dst side
	codec    recordbatch.Codec
	mirror   string
	options  Options
	workers  int // partitions compared at once
	keysMax  int // keys of each that are followed at once
	targets  []mirror.Target
	rows     []Row // of what need not be read, then of all

	mu       sync.Mutex // guards what follows and rows
	progress Progress
	began    time.Time
}

// add finds out what is to be compared of a topic.
func (v *verification) add(topic string, s, d kafka.Topic) {
	sourceID, destinationID := meant(v.options.Source, topic), meant(v.options.Destination, topic)
	if s.ID.IsZero() { // too old to give ids
		sourceID = s.ID
	}
	switch {
	case s.Err != nil:
		v.told(topic, -1, fmt.Sprintf("not compared: at the source: %v", s.Err))
		return
	case d.Err != nil:
		v.told(topic, -1, fmt.Sprintf("not compared: on the destination: %v", d.Err))
		return
	}
	compacted := v.options.Compacted != nil && v.options.Compacted(topic)
	for i := range max(len(s.Partitions), len(d.Partitions)) {
		switch { // what only one side has is told, and no difference
		case i >= len(s.Partitions):
			v.told(topic, int32(i), "the source has no such partition")
			v.rows[len(v.rows)-1].Equal = true
		case i >= len(d.Partitions):
			v.told(topic, int32(i), "the destination does not have this partition yet")
			v.rows[len(v.rows)-1].Equal = true
		default:
			p := mirror.Partition{Mirror: v.mirror, TopicID: sourceID, Index: int32(i)}
			v.targets = append(v.targets, mirror.Target{Partition: p, Topic: topic, DestinationID: destinationID, Source: mirror.NoPosition, Compacted: compacted})
		}
	}
}

func meant(id func(string) mirror.TopicID, topic string) mirror.TopicID {
	if id == nil {
		return mirror.TopicID{}
	}
	return id(topic)
}

func (v *verification) told(topic string, partition int32, detail string) {
	v.rows = append(v.rows, Row{Mirror: v.mirror, Topic: topic, Partition: partition, FirstDifference: -1, Detail: detail})
}

func (v *verification) run(ctx context.Context) []Row {
	v.began, v.progress.Partitions = time.Now(), len(v.targets)
	v.share()
	all := pairs(v.src, v.dst, v.codec, v.targets)(ctx)
	queue := make(chan *pair)
	var wg sync.WaitGroup
	for range v.workers {
		wg.Go(func() {
			for p := range queue {
				v.done(v.partition(ctx, p))
			}
		})
	}
	for _, p := range all {
		queue <- p
	}
	close(queue)
	wg.Wait()
	sortRows(v.rows)
	return v.rows
}

// share divides the memory among as many partitions as can be at work.
func (v *verification) share() {
	memory := max(verifyMemory, cmp.Or(v.options.MemoryLimit, 512<<20))
	v.workers = max(1, min(verifyParallel, len(v.targets), int(memory/verifyMemory)))
	v.keysMax = int(memory / 2 / int64(v.workers) / keyBytes)
}

func (v *verification) done(r Row) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rows = append(v.rows, r)
	v.progress.Done++
	v.tell()
}

// counted reports records while a partition is being read.
func (v *verification) counted(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.progress.Records += n
	v.tell()
}

func (v *verification) tell() {
	if v.options.Progress != nil {
		v.progress.Elapsed = time.Since(v.began)
		v.options.Progress(v.progress)
	}
}

// partition compares one partition.
func (v *verification) partition(ctx context.Context, p *pair) Row {
	last := mirror.NoPosition
	if v.options.LastMirror != nil {
		last = v.options.LastMirror(p.dstTP.Topic, p.dstTP.Partition)
	}
	c := &comparison{pair: p, last: last.Offset, diff: noFinding, counted: v.counted, keysMax: v.keysMax}
	err := p.boundsErr()
	if err == nil {
		err = c.compare(ctx, v.options.Full)
	}
	if err == nil {
		err = c.undecided(ctx)
	}
	r := Row{
		Mirror: v.mirror, Topic: p.dstTP.Topic, Partition: p.dstTP.Partition, From: c.from, To: c.to, Records: c.records,
		Equal: err == nil && c.diff.offset < 0, FirstDifference: c.diff.offset,
	}
	if err != nil {
		c.notes = slices.Insert(c.notes, 0, fmt.Sprintf("not compared to the end: %v", err))
	}
	r.Detail = c.detail()
	return r
}
