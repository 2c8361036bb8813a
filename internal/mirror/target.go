package mirror

import "time"

// Target is one partition as its owner wants it treated now. The data path gets the full set each time (level
// triggered): what is not in the set is drained and forgotten.
type Target struct {
	Partition
	Topic         string
	DestinationID TopicID // id of the destination topic that is meant
	// Definition with TransactionsMode and FillersMode decided; immutable, shared.
	Mirror *Resolved
	State  State
	// StateEpoch identifies the target's state; reports carry it back, so that a late one is told apart.
	StateEpoch int32
	// Run: mirror it. Otherwise it is only watched, so that lag stays true while PAUSED or FAILED.
	Run bool
	// Claim is the claim number of the shard (protocol R11).
	Claim int32
	// PredecessorAlive: the shard's former owner did not give it up in order, so its last requests may still arrive
	// (protocol R16).
	PredecessorAlive bool
	// Shard is the partition's shard: the transactional ids of fillers belong to it (protocol R12).
	Shard int32
	// AcceptLostRange: the operator has accepted, by recover, that records expired before they were copied.
	AcceptLostRange bool
	// Slot is that of shifted producer ids (protocol R14).
	Slot int8
	// Source is the last known leader epoch of the source and where it began; NoPosition: unknown.
	Source Position
	// Compared is 1 + the destination's log end when both logs were compared before the partition was mirrored: from there
	// on nobody but the mirror writes. 0: unknown.
	Compared int64
	// Compacted: the source has compacted the topic while it was mirrored, whatever its policy is now.
	Compacted bool
}

// Resolved is a definition with its "auto" decisions made.
type Resolved struct {
	Definition
	ClusterID        string // the source's, learnt
	TransactionsMode string // Exact or Committed
	FillersMode      string // Markers or Transactions
	Version          int32
}

// PositionReport is what the data path knows about one partition. Offsets are next offsets; −1: unknown.
type PositionReport struct {
	Partition
	Topic             string
	SourceOffset      int64 // high watermark at the source
	DestinationOffset int64 // acknowledged log end at the destination
	SourceEpoch       Position
	OldestUnmirrored  time.Time // append or record time of the oldest record not mirrored yet, by this host's clock; zero: level
	Drained           bool      // nothing in flight and not running, for the StateEpoch below
	Unlocated         bool      // what lies below DestinationOffset may be fillers of an unfinished seeding: not mirrored
	StateEpoch        int32
}

// Lag is the number of offsets not mirrored yet; −1: unknown; never negative otherwise.
func (r PositionReport) Lag() int64 {
	if r.SourceOffset < 0 || r.DestinationOffset < 0 {
		return -1
	}
	return max(0, r.SourceOffset-r.DestinationOffset)
}
