package statestore

import "mirrord/internal/mirror"

// Record is one key and value of __mirror_state as a Go value. Deleting is a record of its own kind: Tombstone.
type Record interface {
	// Shard is the partition of __mirror_state that the record belongs to, of n.
	Shard(n int32) int32
	key() []byte
	value() []byte
}

// LastMirrorEpoch is record type 1 (KIP-1279 LastMirrorEpochs): the position up to which both logs agree, written once
// per stop (protocol R19) and removed when the partition mirrors again.
type LastMirrorEpoch struct {
	mirror.Partition
	Position mirror.Position
}

// PartitionState is record type 2 (KIP-1279 MirrorPartitionState). Rearmed, Kind and Compared are mirrord's own
// tagged fields (tags 100 to 102); readers that do not know them skip them.
type PartitionState struct {
	mirror.Partition
	Topic        string
	State        mirror.State
	Previous     mirror.State // mirror.NotRecorded: none
	RetryAttempt int16        // −1: not retryable
	ErrorMessage string
	StateEpoch   int32 // +1 with every accepted transition
	LeaderEpoch  int32 // of the destination partition, as far as known; −1
	Rearmed      int32 // the Topic.Rearm that this partition has obeyed
	Kind         mirror.Kind
	// Compared is 1 + the destination's log end when both logs were last compared as a whole; 0: unknown.
	Compared int64
}

// Mirror is record type 100: a mirror's definition and what was learnt and decided about it. Shard: the mirror's.
type Mirror struct {
	mirror.Definition
	// LearntClusterID is the id that answered first; another one stops the mirror.
	LearntClusterID string
	// TransactionsMode and FillersMode are what "auto" was decided to be; empty: not yet.
	TransactionsMode, FillersMode string
	// Declared: defined by a configuration file, not by command.
	Declared bool
	// Pending lists patterns given to start that may match topics to come.
	PendingInclude, PendingExclude []string
	Finding                        Finding
	// Version rises with each change of the definition, so that a reader can tell an edit.
	Version int32
}

// Finding is what the metadata manager found wrong at the source or the destination. Owners of partitions obey it:
// with a message, partitions that are not STOPPED go to FAILED. Zero: nothing.
type Finding struct {
	Kind    mirror.Kind
	Message string
}

// Topic is record type 101: what is wished for a topic and which topics are meant. Shard: the mirror's.
type Topic struct {
	Mirror, Name  string
	SourceID      mirror.TopicID
	DestinationID mirror.TopicID // zero: not created yet
	Partitions    int32          // partitions that exist on both sides
	Wish          mirror.State   // Mirroring, Paused or Stopped
	ByCommand     bool           // the wish was commanded: patterns of the file do not undo it
	Promoted      bool           // all is done after the last partition was STOPPED: settings back, guard lifted, groups committed
	// Unready: the destination topic was there before this start, and has to get its settings and its guard before the logs
	// are compared (protocol R20).
	Unready bool
	// Recreating: a recover --reseed is about to delete the destination topic and to create it again, or does so. A stop or
	// pause of the topic waits for the end of that.
	Recreating bool
	// Slot is that of shifted producer ids (protocol R14): above all that the destination topic remembered when it became this
	// mirror's, for they may be another source's.
	Slot    int8
	Rearm   int32  // +1 by each recover
	Message string // why the topic is not there yet, e.g. the destination's reason for refusing to create it
	Finding Finding
	// Drain: stop only once level; DrainDeadlineMillis: then the wish goes back to what it was.
	Drain               bool
	DrainDeadlineMillis int64
	DrainCommand        [16]byte
}

// Rewish is a Topic with another wish than the one it was decided from. It is written only while the wish is still that
// one: what a command has changed meanwhile is not undone.
type Rewish struct {
	Topic
	From Topic
}

// ShardClaim is record type 102: who owns a shard. Number only rises; it is the high part of the coordinator epoch of
// markers (protocol R11).
type ShardClaim struct {
	ShardIndex      int32
	Number          int32
	Owner           string // instance name as shown in describe
	TransactionalID string // of the owner's state writer, so that a successor can end what it left open
	HTTP            string // the owner's HTTP address, for messages
	AtMillis        int64
	Released        bool // given up in order: the successor need not wait
}

// CommandOutcome is record type 103; its existence means that the command was executed. Shard: the mirror's.
type CommandOutcome struct{ mirror.Outcome }

// CommandCursor is record type 104: the next offset of __mirror_commands to execute, written in the transaction that
// holds the effects of the commands before it.
type CommandCursor struct {
	ShardIndex int32
	Next       int64
}

// ShardReport is record type 105: the owner's last word about the positions of a shard's partitions.
type ShardReport struct {
	ShardIndex int32
	Owner      string
	AtMillis   int64
	Positions  []ReportedPosition
}

// ReportedPosition is one partition of a ShardReport. Offsets −1: unknown.
type ReportedPosition struct {
	mirror.Partition
	SourceOffset, DestinationOffset int64
	LagMillis                       int64 // age of the oldest unmirrored record; 0: level
}

// OwnedACL is record type 106: an ACL on the destination that mirrord created. Shard: the mirror's. Binding is the
// textual form that package mmm makes and reads.
type OwnedACL struct{ Mirror, Binding string }

// GroupStatus is record type 107: what was last done for a group. Shard: the mirror's.
type GroupStatus struct {
	Mirror, Group, Type string // Type: classic, consumer or share
	Rows                []GroupRow
}

// GroupRow is one partition of a GroupStatus.
type GroupRow struct {
	Topic             string
	Partition         int32
	SourceOffset      int64 // committed at the source
	DestinationOffset int64 // what mirrord committed; −1: nothing
	Metadata          string
	Status            string // synced, clamped, skipped or failed
	Reason            string
	CommittedAtMillis int64
}

// TopicSettings is record type 108: settings of a mirror topic. Owned are the keys that mirrord has set on the
// destination, Source the source's own values as last seen, which return at STOPPED. Shard: the mirror's.
type TopicSettings struct {
	Mirror, Topic string
	Owned         []string
	Source        map[string]string
	// Untouched: the destination topic was there before, and has no settings of mirrord's, not yet or not any more.
	Untouched bool
	// Trial is such a topic once it has some, until it is found to be a copy; Own are the settings that it had before, which
	// return if it is none. Zero: there is none.
	Trial mirror.TopicID
	Own   map[string]string
	// Compacted: the source has compacted the topic while it was mirrored, so it may lack what the destination has.
	Compacted bool
}

// ClusterIdentity is record type 109, in shard 0: whose destination this is.
type ClusterIdentity struct {
	ClusterID string
	GroupID   string
}

// SourceEpochs is record type 110: the leader epochs of the source with their start offsets, the last ones, as mirrored.
type SourceEpochs struct {
	mirror.Partition
	Epochs []mirror.Position // rising; Offset is the first offset of the epoch
}

// RefreshStatus is record type 111: what the metadata refresh of a mirror could not do when it last tried, by step, and
// what it leaves alone, with the reason. Deleted once there is neither. Shard: the mirror's.
type RefreshStatus struct {
	Mirror   string
	Failures []RefreshFailure
	Notes    []string // sorted
}

// RefreshFailure is the last failure of one step.
type RefreshFailure struct {
	Step, Message string
	Count         int32 // topics, groups or ACLs that failed, at the pass that wrote the record
	SinceMillis   int64
}

// Tombstone deletes Of, of which only the key fields matter.
type Tombstone struct{ Of Record }
