package coordinator

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

var (
	wishes = []mirror.State{mirror.Mirroring, mirror.Paused, mirror.Stopped}
	events = []what{nothing, failed, drained, unlocated, aligned, fenced, promoted, fencing, due, settled}
)

// anyFacts draws any facts at all, sensible or not: the state topic may hold what an older release or a tool has written.
func anyFacts(t *rapid.T) (f facts) {
	p := mirror.Partition{Mirror: "m", TopicID: mirror.TopicID{1}}
	f.state = newState(p, "t")
	f.state.State = rapid.SampledFrom(mirror.States()).Draw(t, "state")
	f.state.Previous = rapid.SampledFrom(append(mirror.States(), mirror.NotRecorded)).Draw(t, "previous")
	f.state.RetryAttempt = rapid.Int16Range(-1, 20).Draw(t, "attempt")
	f.state.Kind = rapid.SampledFrom(mirror.Kinds()).Draw(t, "kind")
	f.state.StateEpoch = rapid.Int32Range(0, 100).Draw(t, "epoch")
	if rapid.Bool().Draw(t, "message") {
		f.state.ErrorMessage = "before"
	}
	f.topic = statestore.Topic{
		Mirror: "m", Name: "t", SourceID: p.TopicID, Partitions: 1, Wish: rapid.SampledFrom(wishes).Draw(t, "wish"),
		Rearm: rapid.Int32Range(0, 1).Draw(t, "rearm"),
	}
	if rapid.Bool().Draw(t, "found") {
		f.finding = statestore.Finding{Kind: rapid.SampledFrom(mirror.Kinds()).Draw(t, "finding"), Message: "found"}
	}
	if rapid.Bool().Draw(t, "recorded") {
		f.position = &mirror.Position{LeaderEpoch: 1, Offset: 5}
	}
	f.event = anyEvent(t)
	return f
}

func anyEvent(t *rapid.T) happening {
	h := happening{what: rapid.SampledFrom(events).Draw(t, "event"), position: mirror.Position{LeaderEpoch: 2, Offset: 9}}
	if h.what == failed {
		h.err = mirror.Errorf(rapid.SampledFrom(mirror.Kinds()).Draw(t, "error"), "broken")
	}
	return h
}

// next is the partition's record among those of a step.
func next(records []statestore.Record) (statestore.PartitionState, bool) {
	for _, r := range records {
		if s, ok := r.(statestore.PartitionState); ok {
			return s, true
		}
	}
	return statestore.PartitionState{}, false
}

func TestLaw_EveryStepIsLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		records := f.step()
		n, moved := next(records)
		if !moved {
			return
		}
		if !mirror.CanEnter(f.state.State, n.State) {
			t.Fatalf("%s → %s", f.state.State, n.State)
		}
		same := f.event.what == settled && n.State == f.state.State && n.StateEpoch == f.state.StateEpoch
		if !same && n.StateEpoch != f.state.StateEpoch+1 {
			t.Fatalf("state epoch %d → %d", f.state.StateEpoch, n.StateEpoch)
		}
		if !same && n.State != f.state.State && n.Previous != f.state.State {
			t.Fatalf("%s → %s, previous state %s", f.state.State, n.State, n.Previous)
		}
		if n.State == mirror.Failed && f.state.State == mirror.Failed && n.Previous != f.state.Previous {
			t.Fatalf("FAILED forgets where it came from: %s, now %s", f.state.Previous, n.Previous)
		}
	})
}

func TestLaw_RetriesAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		n, moved := next(f.step())
		switch {
		case !moved:
		case n.State == mirror.Failed && !n.Kind.Retryable() && n.RetryAttempt != -1:
			t.Fatalf("%s is not retryable and has attempt %d", n.Kind, n.RetryAttempt)
		case n.State == mirror.Failed && n.Kind.Retryable() && n.RetryAttempt < 0:
			t.Fatalf("%s is retryable and has attempt %d", n.Kind, n.RetryAttempt)
		case f.state.State == mirror.Failed && f.event.what == due && f.state.Rearmed == f.topic.Rearm && n.State != mirror.Failed && f.wished() == mirror.Failed:
			used := n.RetryAttempt - f.state.RetryAttempt
			if f.state.Kind == mirror.Unreachable && used != 0 || f.state.Kind != mirror.Unreachable && used != 1 {
				t.Fatalf("a retry of %s used %d attempts", f.state.Kind, used)
			}
		}
	})
}

// P3 and SPEC §7: failover works in any state, and FAILED honours stop and pause at once.
func TestLaw_WishWinsOverFailure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		f.state.State, f.state.Rearmed = mirror.Failed, f.topic.Rearm
		f.topic.Wish = rapid.SampledFrom([]mirror.State{mirror.Stopped, mirror.Paused}).Draw(t, "the wish")
		f.state.Previous = rapid.SampledFrom([]mirror.State{mirror.Unknown, mirror.LogTruncation, mirror.EpochFencing, mirror.Mirroring}).Draw(t, "came from")
		want := mirror.Stopping
		if f.topic.Wish == mirror.Paused {
			want = mirror.Pausing
		}
		if n, _ := next(f.step()); n.State != want {
			t.Fatalf("FAILED with the wish %s goes to %s", f.topic.Wish, n.State)
		}
	})
}

// What failed to fulfil a wish is not tried again because of that wish: only the schedule and the operator do.
func TestLaw_FailureOnTheWayToAWishDoesNotSpin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		f.state.State, f.state.Rearmed, f.finding = mirror.Failed, f.topic.Rearm, statestore.Finding{}
		if f.event.what == due {
			f.event = happening{}
		}
		f.topic.Wish, f.state.Previous = mirror.Stopped, mirror.Stopping
		if rapid.Bool().Draw(t, "paused") {
			f.topic.Wish, f.state.Previous = mirror.Paused, rapid.SampledFrom([]mirror.State{mirror.Pausing, mirror.Paused}).Draw(t, "way")
		}
		if n, moved := next(f.step()); moved {
			t.Fatalf("FAILED from %s with the wish %s goes to %s", f.state.Previous, f.topic.Wish, n.State)
		}
	})
}

// R19: the position is recorded at most once between two times of mirroring, and nothing is promoted before it is.
func TestR19_LastMirrorEpochIsWrittenOncePerStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		records := f.step()
		for _, r := range records {
			if _, writes := r.(statestore.LastMirrorEpoch); writes && f.position != nil {
				t.Fatalf("recorded %v again in %s", r, f.state.State)
			}
		}
		if f.effect() == promote && f.position == nil {
			t.Fatal("promotes before the last mirrored position is recorded")
		}
		n, _ := next(records)
		removed := slices.ContainsFunc(records, func(r statestore.Record) bool { _, is := r.(statestore.Tombstone); return is })
		if back := n.State == mirror.Mirroring && n.StateEpoch != f.state.StateEpoch; removed != (back && f.position != nil) {
			t.Fatalf("%s → %s: position removed %v", f.state.State, n.State, removed)
		}
	})
}

// Without news a partition comes to rest: no pair of rules undoes one another.
func TestLaw_ComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		for range 8 {
			records := f.step()
			if len(records) == 0 {
				return
			}
			f = applied(f, records)
		}
		t.Fatalf("still moving: %s", f.state.State)
	})
}

// applied is what the facts are once records are written.
func applied(f facts, records []statestore.Record) facts {
	for _, r := range records {
		switch r := r.(type) {
		case statestore.PartitionState:
			if r.StateEpoch != f.state.StateEpoch || f.event.what == settled {
				f.event = happening{}
			}
			f.state = r
		case statestore.LastMirrorEpoch:
			f.position = &r.Position
		case statestore.Tombstone:
			f.position = nil
		}
	}
	return f
}
