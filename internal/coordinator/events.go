package coordinator

import (
	"log/slog"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// sightings remembers the state in which each partition of each mirror was last seen, to tell changes by any owner.
type sightings struct {
	loaded map[int32]bool // shards of which the first full view was taken in, silently
	states map[mirror.Partition]sighting
}

type sighting struct {
	state mirror.State
	epoch int32
}

func newSightings() *sightings {
	return &sightings{loaded: map[int32]bool{}, states: map[mirror.Partition]sighting{}}
}

// states is what sightings look at of a view.
type states interface {
	Shards() int32
	Loaded(shard int32) bool
	Partitions(mirrorName string) []statestore.PartitionState
}

// update takes in the view and returns what has changed since the last time.
func (x *sightings) update(v states, index *index) (events []mirror.Event) {
	now, shards := time.Now(), v.Shards()
	seen := make(map[mirror.Partition]sighting, len(x.states))
	for name := range index.mirrors {
		for _, s := range v.Partitions(name) {
			is := sighting{s.State, s.StateEpoch}
			seen[s.Partition] = is
			was, known := x.states[s.Partition]
			if !known {
				was.state = mirror.Unknown
			}
			if was.state == is.state && was.epoch == is.epoch || !x.loaded[mirror.ShardOf(s.Partition, shards)] {
				continue
			}
			e := mirror.Event{
				At: now, Mirror: s.Mirror, Topic: s.Topic, Partition: s.Index, Name: "state changed",
				From: was.state, To: is.state,
			}
			if is.state == mirror.Failed { // elsewhere it is what was the matter before
				e.Message = s.ErrorMessage
			}
			events = append(events, e)
		}
	}
	x.states = seen
	for shard := range shards {
		x.loaded[shard] = x.loaded[shard] || v.Loaded(shard)
	}
	return events
}

// linesAtOnce is how many changes of one kind are logged one by one.
const linesAtOnce = 10

// tell hands events on and logs those of partitions that this instance drives, many of a kind in one line.
func (r *runner) tell(events []mirror.Event) {
	type kind struct {
		mirror   string
		from, to mirror.State
	}
	ours := map[kind][]mirror.Event{}
	for _, e := range events {
		r.deps.Event(e)
		if r.drives(e) {
			k := kind{e.Mirror, e.From, e.To}
			ours[k] = append(ours[k], e)
		}
	}
	for _, changes := range ours {
		if len(changes) > linesAtOnce {
			r.logChange(changes[0], mirror.KeyTopic, changes[0].Topic+", …", mirror.KeyCount, len(changes))
			continue
		}
		for _, e := range changes {
			r.logChange(e, mirror.KeyTopic, e.Topic, mirror.KeyPartition, e.Partition)
		}
	}
}

// drives reports whether an event is about a partition in hand.
func (r *runner) drives(e mirror.Event) bool {
	t := r.index.find(e.Mirror, e.Topic)
	return t != nil && r.partOf(mirror.Partition{Mirror: e.Mirror, TopicID: t.topic.SourceID, Index: e.Partition}) != nil
}

func (r *runner) logChange(e mirror.Event, of ...any) {
	level := slog.LevelInfo
	args := append([]any{mirror.KeyMirror, e.Mirror, mirror.KeyFrom, e.From.String(), mirror.KeyTo, e.To.String()}, of...)
	if e.To == mirror.Failed {
		level, args = slog.LevelWarn, append(args, mirror.KeyCause, e.Message)
	}
	r.log.Log(r.ctx, level, "state changed", args...)
}
