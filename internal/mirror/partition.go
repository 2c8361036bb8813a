package mirror

import (
	"encoding/base64"
	"fmt"
)

// TopicID is a Kafka topic id. The zero value means "none" (clusters older than 2.8).
type TopicID [16]byte

// String is Kafka's form: URL-safe base64 without padding.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero reports whether the cluster gave no id.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// Partition names one mirror partition. TopicID is the source's topic id, so a recreated source topic is another
// partition. Index is the partition number, the same on both sides.
type Partition struct {
	Mirror  string
	TopicID TopicID
	Index   int32
}

// String is the textual key of KIP-1279: mirrorName:topicId:partition.
func (p Partition) String() string { return fmt.Sprintf("%s:%s:%d", p.Mirror, p.TopicID, p.Index) }

// ShardOf is the partition of __mirror_state, of n, that holds the records of p. A stored format.
func ShardOf(p Partition, n int32) int32 { return shard(p.String(), n) }

// ShardOfMirror is the shard of a mirror's own records and commands. A stored format.
func ShardOfMirror(name string, n int32) int32 { return shard(name, n) }

// shard is abs(Java's String.hashCode) mod n; the lowest int32 counts as 0, as in Kafka's Utils.abs. Names are ASCII.
func shard(s string, n int32) int32 {
	var h int32
	for i := range len(s) {
		h = 31*h + int32(s[i])
	}
	if h == -1<<31 {
		h = 0
	}
	if h < 0 {
		h = -h
	}
	return h % n
}

// Position is a place up to which both logs agree: the source's leader epoch and the next offset. −1: unknown.
type Position struct {
	LeaderEpoch int32
	Offset      int64
}

// NoPosition is an unknown position.
var NoPosition = Position{-1, -1}

// Later is whichever of two positions lies further on.
func Later(a, b Position) Position {
	if b.Offset > a.Offset {
		return b
	}
	return a
}
