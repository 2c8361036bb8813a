package coordinator

import (
	"errors"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// what names the things that may come to be known about a partition.
type what uint8

const (
	nothing   what = iota
	failed         // the data path or an effect gave it up
	drained        // the data path holds nothing of it any more
	unlocated      // drained, and it has to be looked up how far was mirrored
	aligned        // both logs agree up to the destination's log end
	fenced         // the destination's leader epoch is above the source's
	promoted       // STOPPING's effect is done
	fencing        // the data path asks for EPOCH_FENCING
	due            // the time of a retry has come
	settled        // it makes progress again after a failure
)

// happening is what came to be known about a partition while it was in its present state epoch.
type happening struct {
	what     what
	err      error           // failed
	position mirror.Position // drained: up to where the destination was acknowledged; aligned: its log end
}

// effect is what the owner of a partition has to do while its state stays as it is. Every effect may be repeated.
type effect uint8

const (
	noEffect effect = iota
	align           // LOG_TRUNCATION: compare both logs
	fence           // EPOCH_FENCING: raise the destination's leader epoch above the source's
	drain           // PAUSING, STOPPING: wait until the data path holds nothing
	promote         // STOPPING, once the last mirrored position is recorded
	locate          // STOPPING: find how far was mirrored, where the data path does not know
)

// facts is all that the decision about one partition depends on.
type facts struct {
	state    statestore.PartitionState // State Unknown where there is no record
	topic    statestore.Topic
	finding  statestore.Finding // of the topic or else of its mirror; zero: none
	position *mirror.Position   // the recorded LastMirrorEpoch; nil: none
	event    happening
	noRetry  bool // retries are switched off
}

// newState is a partition that has no record yet.
func newState(p mirror.Partition, topic string) statestore.PartitionState {
	return statestore.PartitionState{Partition: p, Topic: topic, State: mirror.Unknown, Previous: mirror.NotRecorded, LeaderEpoch: -1}
}

// step gives the records with which the partition goes on; none: it stays. It is pure, and the state it enters is always
// a legal one. In order: the operator's recover, the operator's wish, what the metadata manager found, failures, progress.
func (f facts) step() []statestore.Record {
	s := f.state.State
	switch {
	case s == mirror.Failed && f.state.Rearmed != f.topic.Rearm:
		return f.rearmed().enter(f.resumed())
	case f.wished() != s:
		return f.wiped().enter(f.wished())
	case f.broken():
		return f.fail(&mirror.Error{Kind: f.finding.Kind, Err: errors.New(f.finding.Message)})
	case f.event.what == failed && s != mirror.Stopped && s != mirror.Failed:
		return f.fail(f.event.err)
	}
	return f.proceed()
}

// proceed answers what happened in the present state.
func (f facts) proceed() []statestore.Record {
	type on struct {
		state mirror.State
		what  what
	}
	switch (on{f.state.State, f.event.what}) {
	case on{mirror.LogTruncation, aligned}:
		f.state.Compared = 1 + f.event.position.Offset
		return f.enter(mirror.Mirroring)
	case on{mirror.EpochFencing, fenced}:
		return f.enter(mirror.Mirroring)
	case on{mirror.Mirroring, fencing}:
		return f.enter(mirror.EpochFencing)
	case on{mirror.Mirroring, settled}: // no transition: the state epoch stays, so that the data path is not disturbed
		return []statestore.Record{f.wiped().state}
	case on{mirror.Pausing, drained}:
		return f.wiped().enter(mirror.Paused)
	case on{mirror.Stopping, drained}:
		if f.position == nil { // once per stop (protocol R19)
			return []statestore.Record{statestore.LastMirrorEpoch{Partition: f.state.Partition, Position: f.event.position}}
		}
	case on{mirror.Stopping, promoted}:
		return f.wiped().enter(mirror.Stopped)
	case on{mirror.Failed, due}:
		if f.retryable() {
			return f.retried().enter(f.resumed())
		}
	}
	return nil
}

// effect is what has to run while step gives nothing.
func (f facts) effect() effect {
	switch f.state.State {
	case mirror.LogTruncation:
		return align
	case mirror.EpochFencing:
		return fence
	case mirror.Pausing:
		return drain
	case mirror.Stopping:
		switch {
		case f.position != nil:
			return promote
		case f.event.what == unlocated:
			return locate
		}
		return drain
	default:
		return noEffect
	}
}

// wished is the state that the wish asks for now. A wish wins over failure, but a failure to fulfil this very wish is
// left to the retry schedule, or it would spin.
func (f facts) wished() mirror.State {
	s, wish := f.state.State, f.topic.Wish
	switch {
	case s == mirror.Stopped && wish == mirror.Paused: // started again and paused before it had begun
		return mirror.LogTruncation
	case s != mirror.Failed:
		return mirror.Plan(s, wish)
	}
	switch previous := f.state.Previous; {
	case wish == mirror.Stopped && previous != mirror.Stopping:
		return mirror.Stopping
	case wish == mirror.Paused && previous != mirror.Stopping && !pausing(previous):
		return mirror.Pausing
	}
	return s
}

// resumed is where a FAILED partition goes on: where it came from, or with a comparison of both logs if it never got
// beyond it or if they may have parted.
func (f facts) resumed() mirror.State {
	previous := f.state.Previous
	switch {
	case previous == mirror.Stopping:
		return previous
	case f.topic.Wish == mirror.Stopped:
		return mirror.Stopping
	case f.topic.Wish == mirror.Paused:
		return mirror.Pausing
	case pausing(previous):
		return mirror.Mirroring
	case previous != mirror.EpochFencing && previous != mirror.Mirroring, parted(f.state.Kind):
		return mirror.LogTruncation
	}
	return previous
}

func pausing(s mirror.State) bool { return s == mirror.Pausing || s == mirror.Paused }

// parted reports whether after such a failure the two logs need not be related any more.
func parted(k mirror.Kind) bool {
	switch k {
	case mirror.Diverged, mirror.SourceGone, mirror.DestinationGone, mirror.SourceChanged, mirror.IdentityBroken, mirror.Loop:
		return true
	case mirror.Retriable, mirror.Unreachable, mirror.Fenced, mirror.LostRange, mirror.Refused, mirror.CorruptSource:
	}
	return false
}

// broken reports whether a finding has to be obeyed. Partitions that are paused or stopped on the operator's wish do not
// use what was found, so it does not touch them.
func (f facts) broken() bool {
	if f.finding.Message == "" || f.topic.Wish != mirror.Mirroring {
		return false
	}
	s := f.state
	if s.State == mirror.Failed { // told already, or a promotion that is to be finished
		return s.Previous != mirror.Stopping && (s.Kind != f.finding.Kind || s.ErrorMessage != f.finding.Message)
	}
	return s.State != mirror.Stopped && s.State != mirror.Stopping
}

// retryable reports whether the retry schedule may move a FAILED partition. What a finding says must go away first.
func (f facts) retryable() bool {
	return !f.noRetry && f.state.RetryAttempt >= 0 && f.state.Kind.Retryable() && (f.finding.Message == "" || f.topic.Wish != mirror.Mirroring)
}

// fail enters FAILED, or changes the reason there.
func (f facts) fail(err error) []statestore.Record {
	f.state.Kind, f.state.ErrorMessage = mirror.KindOf(err), err.Error()
	f.state.RetryAttempt = max(0, f.state.RetryAttempt)
	if !f.state.Kind.Retryable() {
		f.state.RetryAttempt = -1
	}
	previous := f.state.Previous
	records := f.enter(mirror.Failed)
	if f.state.State == mirror.Failed {
		records[0] = withPrevious(records[0], previous)
	}
	return records
}

func withPrevious(r statestore.Record, previous mirror.State) statestore.Record {
	s := r.(statestore.PartitionState)
	s.Previous = previous
	return s
}

// wiped forgets a failure.
func (f facts) wiped() facts {
	f.state.ErrorMessage, f.state.RetryAttempt, f.state.Kind = "", 0, mirror.Retriable
	return f
}

// rearmed forgets a failure on the operator's word. That a range was lost is remembered: it is now accepted.
func (f facts) rearmed() facts {
	kind := f.state.Kind
	f = f.wiped()
	if kind == mirror.LostRange {
		f.state.Kind = kind
	}
	return f
}

// retried counts a retry. A cluster that does not answer costs none.
func (f facts) retried() facts {
	if f.state.Kind != mirror.Unreachable {
		f.state.RetryAttempt++
	}
	return f
}

// enter moves to a state: the partition's record first, then what the last mirrored position becomes. The message and the
// attempt are carried along until there is progress.
func (f facts) enter(to mirror.State) []statestore.Record {
	n := f.state
	n.Previous, n.State = n.State, to
	n.StateEpoch++
	n.Rearmed = f.topic.Rearm
	if n.Previous == mirror.Stopped {
		n.Compared = 0 // others may have written since
	}
	records := []statestore.Record{n}
	lme := statestore.LastMirrorEpoch{Partition: n.Partition, Position: mirror.NoPosition}
	switch {
	case to == mirror.Mirroring && f.position != nil:
		return append(records, statestore.Tombstone{Of: lme})
	case (to == mirror.Stopping || to == mirror.Pausing) && f.position == nil && f.neverAligned():
		return append(records, lme) // nothing was mirrored, and the log end must not be taken for a mirrored position
	}
	return records
}

// neverAligned reports whether the partition has not been mirrored since it was started.
func (f facts) neverAligned() bool {
	s := f.state.State
	if s == mirror.Failed {
		s = f.state.Previous
	}
	return s == mirror.LogTruncation || s == mirror.Unknown || s == mirror.NotRecorded
}
