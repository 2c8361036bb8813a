package coordinator

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// part is what the owner of a partition remembers about it. All but the first four belongs to one state epoch and is
// forgotten with it; nothing of it has to survive.
type part struct {
	partition mirror.Partition
	topic     string
	ran       bool // the data path was told to mirror it
	leaving   bool // a transition is on its way: it is not to run any more

	epoch    int32
	since    time.Time // when this epoch was first seen here
	event    happening
	running  *batch
	proposal *proposal
	again    time.Time // the state's effect is not to be repeated before
	repeated int       // times that it was
	refused  time.Time // when it first failed, if it was repeated
	retryAt  time.Time // FAILED: when to try again; zero: not by itself
	retries  int       // of a cluster that does not answer, in a row: they use up no attempt
	base     int64     // first destination offset reported in this epoch; −1: none yet
}

// proposal is a state that somebody asked for through the door.
type proposal struct {
	to       mirror.State
	err      error // the cause of FAILED
	position *mirror.Position
	done     func(code int16, message string, stateEpoch int32)
}

// abandon answers a proposal that cannot be served any more.
func (t *part) abandon() {
	if t.proposal != nil {
		t.proposal.done(mirror.CodeNotCoordinator, "this instance is not the coordinator any more", t.epoch)
		t.proposal = nil
	}
}

// enroll makes the parts of a shard match the index, and notes new state epochs.
func (r *runner) enroll(s *shard) {
	if s.phase != driving && s.phase != releasing {
		return
	}
	if s.enrolled != r.index.version {
		s.enrolled = r.index.version
		r.collect(s)
	}
	now := time.Now()
	for p, t := range s.parts {
		state, ok := r.view.Partition(p)
		if !ok {
			state = newState(p, t.topic)
		}
		if state.StateEpoch != t.epoch || t.since.IsZero() {
			r.enter(t, state, now)
		}
	}
}

// collect finds the partitions of a shard.
func (r *runner) collect(s *shard) {
	parts := map[mirror.Partition]*part{}
	for _, m := range r.index.mirrors {
		for _, e := range m.topics {
			for i, p := range e.parts {
				if e.shards[i] != s.index {
					continue
				}
				if parts[p] = s.parts[p]; parts[p] == nil {
					parts[p] = &part{partition: p, topic: e.topic.Name}
				}
			}
		}
	}
	for p, t := range s.parts {
		if parts[p] == nil {
			t.abandon()
			delete(r.rows, p)
		}
	}
	s.parts = parts
	s.order = slices.SortedFunc(maps.Keys(parts), comparePartitions)
}

// enter begins a state epoch.
func (r *runner) enter(t *part, state statestore.PartitionState, now time.Time) {
	if t.running != nil && !t.running.effect.writes() {
		t.running.leave()
		t.running = nil // what it finds is about the past
	}
	t.epoch, t.since, t.event, t.base, t.retryAt = state.StateEpoch, now, happening{}, -1, time.Time{}
	t.leaving, t.again, t.repeated = false, time.Time{}, 0
	if state.State == mirror.Failed {
		t.retryAt = r.retryAt(t, state, now)
	}
	if at := state.State; at == mirror.Stopped || at == mirror.Paused {
		t.retries = 0
	}
}

// retryAt is when a FAILED partition is tried again; zero: not by itself.
func (r *runner) retryAt(t *part, state statestore.PartitionState, now time.Time) time.Time {
	retry := r.deps.Config.Retry
	if retry.MaxAttempts == 0 || !state.Kind.Retryable() || state.RetryAttempt < 0 {
		return time.Time{}
	}
	attempt := int(state.RetryAttempt)
	if state.Kind == mirror.Unreachable {
		attempt = t.retries
		t.retries++
	} else if retry.Exhausted(attempt) {
		return time.Time{}
	}
	return now.Add(retry.Delay(attempt, rand.Float64()))
}

// happened notes what came to be known about a partition in a state epoch; what is about another epoch is dropped.
func (r *runner) happened(of mirror.Target, h happening) {
	t := r.partOf(of.Partition)
	if t == nil || t.epoch != of.StateEpoch || t.event.what == failed {
		return
	}
	state, _ := r.view.Partition(of.Partition)
	if h.what == failed && (state.State == mirror.Failed || state.State == mirror.Stopped) {
		return
	}
	if h.what == failed {
		r.metrics.failed(mirror.KindOf(h.err))
	}
	t.event = h
}

// partOf is a partition in hand.
func (r *runner) partOf(p mirror.Partition) *part {
	n := r.view.Shards()
	if n == 0 {
		return nil
	}
	if s := r.shards[mirror.ShardOf(p, n)]; s != nil {
		return s.parts[p]
	}
	return nil
}

// sourceUp makes partitions due that wait for a source to answer.
func (r *runner) sourceUp(mirrorName string) {
	now := time.Now()
	for _, s := range r.shards {
		for p, t := range s.parts {
			if state, ok := r.view.Partition(p); p.Mirror == mirrorName && ok && state.Kind == mirror.Unreachable && !t.retryAt.IsZero() {
				t.retryAt, t.retries = now, 0
			}
		}
	}
}

// facts gathers what the decision about a partition depends on.
func (r *runner) facts(t *part, now time.Time) (f facts, ok bool) {
	e := r.index.find(t.partition.Mirror, t.topic)
	if e == nil || e.topic.SourceID != t.partition.TopicID {
		return f, false
	}
	f = facts{topic: e.topic, finding: e.finding, event: t.event, noRetry: r.deps.Config.Retry.MaxAttempts == 0}
	if f.state, ok = r.view.Partition(t.partition); !ok {
		if e.topic.DestinationID.IsZero() {
			return f, false // nothing is there to begin with
		}
		f.state = newState(t.partition, t.topic)
	}
	if f.state.StateEpoch != t.epoch {
		return f, false // the view has moved on: enroll first
	}
	if at, recorded := r.view.LastMirror(t.partition); recorded {
		f.position = &at
	}
	if f.event.what == nothing && !t.retryAt.IsZero() && !now.Before(t.retryAt) {
		f.event.what = due
	}
	return f, true
}

// targetsOf adds how the data path is to treat the partitions of a shard.
func (r *runner) targetsOf(s *shard, targets []mirror.Target) []mirror.Target {
	if s.phase != driving && s.phase != releasing {
		return targets
	}
	for p, t := range s.parts {
		state, ok := r.view.Partition(p)
		e := r.index.find(p.Mirror, t.topic)
		if !ok || state.State == mirror.Stopped || e == nil || e.in.resolved == nil || e.topic.DestinationID.IsZero() {
			continue
		}
		if e.in.refused && state.State != mirror.Pausing && state.State != mirror.Stopping {
			continue // nor is it watched: what answers is not its source
		}
		run := state.State == mirror.Mirroring && s.phase == driving && !t.leaving
		t.ran = t.ran || run
		targets = append(targets, r.target(s, e, state, run))
	}
	return targets
}

// target is one partition for the data path or an effect.
func (r *runner) target(s *shard, e *topicEntry, state statestore.PartitionState, run bool) mirror.Target {
	source := mirror.NoPosition
	if epochs := r.view.Epochs(state.Partition); len(epochs) > 0 {
		source = epochs[len(epochs)-1]
	}
	settings, _ := r.view.Settings(state.Mirror, e.topic.Name)
	return mirror.Target{
		Partition: state.Partition, Topic: e.topic.Name, DestinationID: e.topic.DestinationID,
		Mirror: e.in.resolved, State: state.State, StateEpoch: state.StateEpoch, Run: run, Claim: s.claim.Number,
		PredecessorAlive: time.Now().Before(s.quiet), Shard: s.index,
		AcceptLostRange: state.State == mirror.Mirroring && state.Kind == mirror.LostRange, Slot: e.topic.Slot, Source: source,
		Compared: state.Compared, Compacted: settings.Compacted,
	}
}

func compareTargets(a, b mirror.Target) int {
	return cmp.Or(cmp.Compare(a.Mirror.Name, b.Mirror.Name), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Index, b.Index))
}
