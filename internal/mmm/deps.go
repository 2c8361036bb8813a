package mmm

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// View is the part of *statestore.View that a refresh reads.
type View interface {
	Mirrors() []statestore.Mirror
	Mirror(name string) (statestore.Mirror, bool)
	Topics(mirrorName string) []statestore.Topic
	Topic(mirrorName, topic string) (statestore.Topic, bool)
	Seen(topic string) bool // some mirror has or had it
	Partitions(mirrorName string) []statestore.PartitionState
	Partition(p mirror.Partition) (statestore.PartitionState, bool)
	LastMirror(p mirror.Partition) (mirror.Position, bool)
	Report(p mirror.Partition) (at statestore.ReportedPosition, owner string, ok bool)
	ACLs(mirrorName string) []statestore.OwnedACL
	Groups(mirrorName string) []statestore.GroupStatus
	Settings(mirrorName, topic string) (statestore.TopicSettings, bool)
	RefreshStatus(mirrorName string) statestore.RefreshStatus
	Changed() <-chan struct{} // closed at the next change
}

// Deps are what a Manager works with. Event may be nil.
type Deps struct {
	Destination *kafka.Cluster
	// Source gives the shared cluster of a definition; it is not closed here.
	Source func(mirror.Definition) (*kafka.Cluster, error)
	// Renew gives up the connection of a definition, for another cluster answers: its brokers would be asked for as long as
	// they answer, also when the address leads to the right one again. Nil: connections are never given up.
	Renew func(mirror.Definition)
	View  View
	// Put appends records of a mirror that this instance owns. It is fenced; the view shows them when it returns.
	Put   func(ctx context.Context, mirrorName string, recs ...statestore.Record) error
	Lease func() error // nil error: this instance may act (protocol R16)
	// Owned lists the mirrors whose shard this instance owns; Changed gives a channel that fires when that may have
	// changed.
	Owned   func() []string
	Changed func() <-chan struct{}
	// Fresh tells that the state topic held nothing when this instance first read it: a new destination, or its state was
	// lost. Nil: never.
	Fresh func() bool
	// Commanded tells that commands had been given on this destination before this instance first read it.
	Commanded func() bool
	// Opposite asks a mirror's source, now, what it mirrors from here. Nil: nothing.
	Opposite func(ctx context.Context, m statestore.Mirror) (Opposite, error)
	// Tail writes the records of a destination partition that the source does not share, one a line, and counts them.
	Tail func(ctx context.Context, mirrorName string, t statestore.Topic, partition int32, w io.Writer) (records int64, err error)
	// Event tells an operator's history what happened.
	Event      func(mirror.Event)
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// event tells what happened to a topic, or with none to the mirror.
func (d Deps) event(mirrorName, topic, name, message string) {
	if d.Event != nil {
		d.Event(mirror.Event{
			At: time.Now(), Mirror: mirrorName, Topic: topic, Partition: -1, Name: name, From: mirror.NotRecorded,
			To: mirror.NotRecorded, Message: message,
		})
	}
}

// takenBy finds another mirror that has a topic and goes before the asking one: it has settled on the destination's
// topic already, or neither has and its name comes first.
func takenBy(v View, mirrorName, topic string) (by string, ok bool) {
	own, _ := v.Topic(mirrorName, topic)
	for _, m := range v.Mirrors() { // sorted by name
		t, has := v.Topic(m.Name, topic)
		if m.Name == mirrorName || !has || promoted(t) {
			continue
		}
		ownActive := own.Name != "" && own.Wish != mirror.Stopped
		first := !ownActive || own.DestinationID.IsZero() && (!t.DestinationID.IsZero() || m.Name < mirrorName)
		if first {
			return m.Name, true
		}
	}
	return "", false
}
