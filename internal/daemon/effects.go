package daemon

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"mirrord/internal/compare"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/mmm"
	"mirrord/internal/promote"
	"mirrord/internal/statestore"
)

// effects joins packages that do not know one another: what the coordinator asks for is done by compare and promote on
// the clusters of the mirror.
type effects struct {
	destination *kafka.Cluster
	source      func(mirror.Definition) (*kafka.Cluster, error)
	meant       func(context.Context, *mirror.Resolved) (*kafka.Cluster, error) // source, made sure of
	view        *statestore.View
	promoter    *promote.Promoter
	sweep       func(context.Context, []mirror.Target) []error // removes the fillers of unfinished seedings
	positions   func() []mirror.PositionReport
	event       func(mirror.Event)
	opposites   opposites
	fenced      fenced
}

// align is the effect of LOG_TRUNCATION. Targets may be of several mirrors.
func (e *effects) align(ctx context.Context, targets []mirror.Target) (ends []int64, errs []error) {
	ends, errs = make([]int64, len(targets)), make([]error, len(targets))
	byMirror := map[string][]int{}
	for i, t := range targets {
		byMirror[t.Partition.Mirror] = append(byMirror[t.Partition.Mirror], i)
	}
	var all sync.WaitGroup
	for _, of := range byMirror {
		all.Go(func() { e.alignMirror(ctx, targets, of, ends, errs) })
	}
	all.Wait()
	return ends, errs
}

// alignMirror answers for the targets at the given places, all of one mirror.
func (e *effects) alignMirror(ctx context.Context, targets []mirror.Target, of []int, ends []int64, errs []error) {
	fail := func(err error) {
		for _, i := range of {
			errs[i] = err
		}
	}
	source, err := e.meant(ctx, targets[of[0]].Mirror)
	if err != nil {
		fail(err)
		return
	}
	began := time.Now()
	opposite, err := e.opposites.of(ctx, targets[of[0]].Mirror.Name, e.destination, source, time.Time{})
	if err == nil && slices.ContainsFunc(of, func(i int) bool { return opposite.Loop(targets[i].Topic) != nil || opposite.Dormant(targets[i].Topic) }) {
		// It may have been stopped or begun there a moment ago, and the verdict is for good.
		opposite, err = e.opposites.of(ctx, targets[of[0]].Mirror.Name, e.destination, source, began)
	}
	if err != nil {
		fail(err)
		return
	}
	var candidates []mirror.Target
	for _, i := range of {
		if errs[i] = opposite.Loop(targets[i].Topic); errs[i] == nil {
			candidates = append(candidates, targets[i])
		}
	}
	unfit := e.settled(ctx, source, candidates)
	var open []mirror.Target
	var places []int
	for _, i := range of {
		if errs[i] == nil {
			errs[i] = unfit[targets[i].Topic]
		}
		if errs[i] == nil {
			open, places = append(open, targets[i]), append(places, i)
		}
	}
	results := compare.Align(ctx, source, e.destination, open, func(t mirror.Target) mirror.Position { return e.lastMirrored(opposite, t) })
	for k, a := range results {
		ends[places[k]], errs[places[k]] = a.DestinationEnd, a.Err
		if a.Note != "" {
			e.event(mirror.Event{
				At: time.Now(), Mirror: open[k].Partition.Mirror, Topic: open[k].Topic, Partition: open[k].Index,
				Name: "logs compared", From: mirror.NotRecorded, To: mirror.NotRecorded, Message: a.Note,
			})
		}
	}
}

// lastMirrored is the position up to which both logs are known to have agreed: as this mirror recorded it when it was
// stopped, or the mirror in the other direction, whichever was later.
func (e *effects) lastMirrored(opposite mmm.Opposite, t mirror.Target) mirror.Position {
	own, _ := e.view.LastMirror(t.Partition)
	return mirror.Later(own, opposite.LastMirrored(t))
}

// opposite is what the source of a mirror says now about mirroring the other way.
func (e *effects) opposite(ctx context.Context, m statestore.Mirror) (mmm.Opposite, error) {
	source, err := e.source(m.Definition)
	if err != nil {
		return mmm.Opposite{}, err
	}
	return e.opposites.of(ctx, m.Name, e.destination, source, time.Now())
}

// promote is the effect of STOPPING. A partition without a recorded position comes here without anybody having looked what
// it holds.
func (e *effects) promote(ctx context.Context, targets []mirror.Target) []error {
	errs := make([]error, len(targets))
	places := func(chosen func(int) bool) (of []mirror.Target, at []int) {
		for i, t := range targets {
			if chosen(i) {
				of, at = append(of, t), append(at, i)
			}
		}
		return of, at
	}
	unlocated, at := places(func(i int) bool {
		last, ok := e.view.LastMirror(targets[i].Partition)
		return !ok || last.Offset < 0
	})
	for k, err := range e.sweep(ctx, unlocated) {
		errs[at[k]] = err
	}
	swept, at := places(func(i int) bool { return errs[i] == nil })
	for k, err := range promote.Errors(e.promoter.Promote(ctx, swept)) {
		errs[at[k]] = err
	}
	return errs
}

// lag asks both clusters how many offsets of each topic are not mirrored yet. Topics of which a partition does not
// answer are left out.
func (e *effects) lag(ctx context.Context, mirrorName string, topics []string) (map[string]int64, error) {
	m, ok := e.view.Mirror(mirrorName)
	if !ok {
		return nil, mirror.Errorf(mirror.Refused, "mirror %s is not defined", mirrorName)
	}
	if m.Finding.Message != "" {
		return nil, &mirror.Error{Kind: m.Finding.Kind, Err: errors.New(m.Finding.Message)}
	}
	source, err := e.meant(ctx, &mirror.Resolved{Definition: m.Definition, ClusterID: m.LearntClusterID})
	if err != nil {
		return nil, err
	}
	var src, dst []kafka.TP
	for _, name := range topics {
		t, ok := e.view.Topic(mirrorName, name)
		if !ok {
			continue
		}
		for p := range t.Partitions {
			src = append(src, kafka.TP{Topic: name, TopicID: t.SourceID, Partition: p, LeaderEpoch: -1})
			dst = append(dst, kafka.TP{Topic: name, TopicID: t.DestinationID, Partition: p, LeaderEpoch: -1})
		}
	}
	var have map[kafka.TP]kafka.OffsetResult
	var all sync.WaitGroup
	all.Go(func() { have = e.destination.LogEnds(ctx, dst) })
	want := source.Ranges(ctx, src)
	all.Wait()
	lags, unknown := map[string]int64{}, map[string]bool{}
	for i, tp := range src {
		s, d := want[tp], have[dst[i]]
		if s.Err != nil || d.Err != nil || s.HighWatermark < 0 || d.Offset < 0 {
			unknown[tp.Topic] = true
			continue
		}
		lags[tp.Topic] += max(0, s.HighWatermark-d.Offset)
	}
	for name := range unknown {
		delete(lags, name)
	}
	return lags, nil
}

// tail writes what a destination partition holds and its source does not. Where the source cannot tell (the topic is
// gone or another one), that is everything.
func (e *effects) tail(ctx context.Context, mirrorName string, t statestore.Topic, partition int32, w io.Writer) (int64, error) {
	tp := kafka.TP{Topic: t.Name, TopicID: t.DestinationID, Partition: partition, LeaderEpoch: -1}
	from := int64(0)
	if m, ok := e.view.Mirror(mirrorName); ok {
		source, err := e.source(m.Definition)
		if err != nil {
			return 0, err
		}
		target := mirror.Target{
			Partition: mirror.Partition{Mirror: mirrorName, TopicID: t.SourceID, Index: partition}, Topic: t.Name,
			DestinationID: t.DestinationID, Mirror: &mirror.Resolved{Definition: m.Definition},
		}
		settings, _ := e.view.Settings(mirrorName, t.Name)
		target.Compacted = settings.Compacted
		if state, ok := e.view.Partition(target.Partition); ok {
			target.Compared = state.Compared
		}
		opposite, err := e.opposites.of(ctx, mirrorName, e.destination, source, time.Time{})
		if err != nil {
			opposite = mmm.Opposite{} // better too much than nothing
		}
		last := func(t mirror.Target) mirror.Position { return e.lastMirrored(opposite, t) }
		a := compare.Align(ctx, source, e.destination, []mirror.Target{target}, last)[0]
		switch {
		case a.Err == nil:
			return 0, nil
		case mirror.KindOf(a.Err) == mirror.Diverged && a.First >= 0:
			from = a.First
		case mirror.KindOf(a.Err) == mirror.Unreachable:
			return 0, a.Err
		}
	}
	return compare.Export(ctx, e.destination, tp, from, -1, w)
}

const (
	oppositeFresh   = 5 * time.Second // an answer serves so long: the partitions of a mirror align in batches
	oppositeTimeout = 30 * time.Second
)

// opposites reads and shares the state topics of sources. It is safe for concurrent use.
type opposites struct {
	mu    sync.Mutex
	known map[string]*oppositeLook // by mirror
}

type oppositeLook struct {
	began time.Time
	done  chan struct{}
	at    time.Time // when done
	found mmm.Opposite
	err   error
}

// of asks for the opposite of a mirror, unless somebody is asking or has just done so, and not before since.
func (o *opposites) of(ctx context.Context, mirrorName string, destination, source *kafka.Cluster, since time.Time) (mmm.Opposite, error) {
	o.mu.Lock()
	if o.known == nil {
		o.known = map[string]*oppositeLook{}
	}
	l := o.known[mirrorName]
	if l == nil || l.began.Before(since) || closed(l.done) && (l.err != nil || time.Since(l.at) > oppositeFresh) {
		l = &oppositeLook{began: time.Now(), done: make(chan struct{})}
		o.known[mirrorName] = l
		go func() {
			// Others wait for the answer too, so the first one's leaving must not end it.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), oppositeTimeout)
			defer cancel()
			l.found, l.err = mmm.ReadOpposite(ctx, destination, source)
			l.at = time.Now()
			close(l.done)
		}()
	}
	o.mu.Unlock()
	select {
	case <-l.done:
		return l.found, l.err
	case <-ctx.Done():
		return mmm.Opposite{}, context.Cause(ctx)
	}
}
