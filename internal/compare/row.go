package compare

import (
	"cmp"
	"slices"
	"time"

	"mirrord/internal/mirror"
)

// Row is what Verify found out about one partition. Its JSON names are part of the command line's contract.
type Row struct {
	Mirror          string `json:"mirror"`
	Topic           string `json:"topic"`
	Partition       int32  `json:"partition"`
	From            int64  `json:"from"`            // first offset that both sides hold
	To              int64  `json:"to"`              // offset after the last that both sides hold and have decided
	Records         int64  `json:"records"`         // records compared
	Equal           bool   `json:"equal"`           // no difference was found
	FirstDifference int64  `json:"firstDifference"` // −1: none
	Detail          string `json:"detail"`          // what else there is to say; empty: nothing
}

// Options of a Verify.
type Options struct {
	// Full reads the whole log. Otherwise both ends and a sample of what lies between.
	Full bool
	// LastMirror is up to where a stopped partition was mirrored; NoPosition or nil: it is not stopped, or unknown.
	LastMirror func(topic string, partition int32) mirror.Position
	// Source and Destination are the topic ids that are meant; zero or nil: whatever has the name.
	Source, Destination func(topic string) mirror.TopicID
	// Compacted reports whether the source has compacted a topic while it was mirrored; nil: unknown.
	Compacted func(topic string) bool
	// MemoryLimit bounds what is held of the logs and of their keys at once, in bytes; 0: 512 MiB.
	MemoryLimit int64
	// Progress is called now and then, never twice at once; nil: nobody watches.
	Progress func(Progress)
}

// Progress of a Verify as a whole.
type Progress struct {
	Partitions, Done int   // of how many partitions, and how many are done
	Records          int64 // compared so far
	Elapsed          time.Duration
}

func sortRows(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
