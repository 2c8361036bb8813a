package mirror

import (
	"fmt"
	"slices"
)

// State is the mirror state of one partition (KIP-1279, "State descriptions"). The numbers are stored in
// __mirror_state: append only, never renumber. As a desired state only Mirroring, Paused and Stopped are used.
type State int8

// The states of a mirror partition.
const (
	Unknown       State = -1 // no record yet
	LogTruncation State = 0  // finding where both logs agree
	EpochFencing  State = 1  // the destination's leader epoch is being raised above the source's
	Mirroring     State = 2  // being fetched
	Pausing       State = 3  // draining
	Paused        State = 4  // guarded, not fetched, no metadata sync
	Stopping      State = 5  // the promotion sequence is running
	Stopped       State = 6  // writable; the last mirrored position is kept
	Failed        State = 7  // waiting for a retry or for the operator
)

// NotRecorded stands for "no previous state" in a MirrorPartitionState record (schema default of PreviousState).
const NotRecorded State = 16

var stateNames = map[State]string{
	Unknown: "UNKNOWN", LogTruncation: "LOG_TRUNCATION", EpochFencing: "EPOCH_FENCING", Mirroring: "MIRRORING",
	Pausing: "PAUSING", Paused: "PAUSED", Stopping: "STOPPING", Stopped: "STOPPED", Failed: "FAILED",
}

// States lists all states in the order of their numbers.
func States() []State {
	return []State{Unknown, LogTruncation, EpochFencing, Mirroring, Pausing, Paused, Stopping, Stopped, Failed}
}

// String is the state's name as shown to operators; a number for a state that this release does not know.
func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	if s == NotRecorded {
		return ""
	}
	return fmt.Sprintf("STATE(%d)", int8(s))
}

// enterableFrom lists, for every state, the states it may be entered from. Entering the state that one is in is always
// legal: a new owner repeats the state's effect.
var enterableFrom = map[State][]State{
	LogTruncation: {Unknown, Stopped, Failed},
	EpochFencing:  {Mirroring, Failed},
	Mirroring:     {LogTruncation, EpochFencing, Paused, Failed},
	Pausing:       {LogTruncation, EpochFencing, Mirroring, Failed},
	Paused:        {Pausing, Failed},
	Stopping:      {LogTruncation, EpochFencing, Mirroring, Pausing, Paused, Failed},
	Stopped:       {Stopping},
	Failed:        {Unknown, LogTruncation, EpochFencing, Mirroring, Pausing, Paused, Stopping},
}

// CanEnter reports whether a partition in state cur may move to next.
func CanEnter(cur, next State) bool {
	return cur == next || slices.Contains(enterableFrom[next], cur)
}

// EnterableFrom lists the states that next may be entered from, itself apart.
func EnterableFrom(next State) []State { return slices.Clone(enterableFrom[next]) }

// Plan returns the state that a partition's owner moves it to, given its state and the operator's wish (Mirroring,
// Paused or Stopped). It is pure and always a legal transition. A wish wins over failure: FAILED honours stop and
// pause at once, so failover works with the source dead; otherwise FAILED keeps its own retry schedule.
func Plan(cur, wish State) State {
	switch {
	case wish == Stopped && cur != Stopped && cur != Unknown:
		return Stopping
	case cur == Stopping: // a promotion that has begun is finished whatever is wished meanwhile
		return cur
	case wish == Paused && slices.Contains(enterableFrom[Pausing], cur):
		return Pausing
	case wish == Mirroring && cur == Paused:
		return Mirroring
	case wish == Mirroring && cur == Stopped, cur == Unknown: // nothing is paused or stopped before it has begun
		return LogTruncation
	default:
		return cur
	}
}
