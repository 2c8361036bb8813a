package coordinator

import (
	"reflect"
	"slices"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// item is mirror-level work that waits for the shard of its mirror. prepare decides on the present view.
type item struct {
	prepare func() ([]statestore.Record, error)
	done    func(error)
}

// put queues an item for a mirror's shard.
func (r *runner) put(mirrorName string, i *item) {
	n := r.view.Shards()
	if n == 0 {
		i.done(errEnded)
		return
	}
	s := r.shards[mirror.ShardOfMirror(mirrorName, n)]
	if s == nil || s.phase != driving {
		i.done(mirror.Errorf(mirror.Fenced, "this instance does not own mirror %s", mirrorName))
		return
	}
	s.items = append(s.items, i)
}

// mirrorLevel gives the records of one append for the mirrors whose shard it is, and what is to be called after it: the
// items that wait; if none does, one declared mirror, one command or the drains.
func (r *runner) mirrorLevel(s *shard, now time.Time) (records []statestore.Record, after []func(error)) {
	if len(s.items) > 0 {
		return r.takeItems(s)
	}
	if records = r.declare(s); len(records) > 0 { // before commands, which may be about it
		return records, after
	}
	if records, after = r.command(s, now); len(records) > 0 {
		return records, after
	}
	if records = r.drains(s, now); len(records) > 0 {
		return records, after
	}
	return r.sweep(s, now), after
}

// takeItems joins waiting items into one append, up to the first one that touches a record already touched: it has to
// see what the first made of it.
func (r *runner) takeItems(s *shard) (records []statestore.Record, after []func(error)) {
	touched := map[any]bool{}
	for len(s.items) > 0 && len(records) < itemRecords {
		i := s.items[0]
		rs, err := i.prepare()
		if err != nil {
			i.done(err)
			s.items = s.items[1:]
			continue
		}
		for _, rec := range rs {
			if touched[contested(rec)] {
				return records, after
			}
		}
		for _, rec := range rs {
			if key := contested(rec); key != nil {
				touched[key] = true
			}
		}
		records, after = append(records, rs...), append(after, i.done)
		s.items = s.items[1:]
	}
	return records, after
}

const itemRecords = 2000

// contested is the key of a record that several writers change; nil for all others.
func contested(r statestore.Record) any {
	switch r := r.(type) {
	case statestore.Mirror:
		return r.Name
	case statestore.Topic:
		return [2]string{r.Mirror, r.Name}
	case statestore.Rewish:
		return [2]string{r.Mirror, r.Name}
	}
	return nil
}

// merged is what the metadata manager wants to write, made to agree with what was commanded since it looked. Its own are
// the facts about a topic: ids, partition count, findings, whether the promotion is finished. The operator's are the wish,
// re-arming and draining; that it is being recreated is noted by whoever answers the command. The metadata manager changes
// a wish (a topic newly excluded) by a Rewish only.
func (r *runner) merged(records []statestore.Record) []statestore.Record {
	out := make([]statestore.Record, len(records))
	for i, rec := range records {
		switch rec := rec.(type) {
		case statestore.Topic:
			out[i] = r.mergedTopic(rec, false)
		case statestore.Rewish:
			now, ok := r.view.Topic(rec.Mirror, rec.Name)
			out[i] = r.mergedTopic(rec.Topic, ok && now.Wish == rec.From.Wish && now.ByCommand == rec.From.ByCommand)
		case statestore.Mirror:
			out[i] = r.mergedMirror(rec)
		default:
			out[i] = rec
		}
	}
	return out
}

func (r *runner) mergedTopic(t statestore.Topic, rewish bool) statestore.Record {
	now, ok := r.view.Topic(t.Mirror, t.Name)
	if !ok {
		return t
	}
	t.Unready = t.Unready || now.Unready && t.Wish != now.Wish // what has not seen the start cannot have made it ready
	if !rewish {
		t.Wish, t.ByCommand = now.Wish, now.ByCommand
	}
	t.Rearm, t.Recreating = max(t.Rearm, now.Rearm), now.Recreating
	t.Drain, t.DrainDeadlineMillis, t.DrainCommand = now.Drain, now.DrainDeadlineMillis, now.DrainCommand
	t.Promoted = t.Promoted && t.Wish == mirror.Stopped
	return t
}

func (r *runner) mergedMirror(m statestore.Mirror) statestore.Record {
	now, ok := r.view.Mirror(m.Name)
	if !ok || m.Version >= now.Version {
		return m
	}
	now.LearntClusterID = m.LearntClusterID
	return now // what was decided about an older definition is decided again
}

// declare makes one mirror of the configuration file match it.
func (r *runner) declare(s *shard) []statestore.Record {
	definitions := r.declared.Load()
	if definitions == nil {
		return nil
	}
	for _, d := range *definitions {
		if mirror.ShardOfMirror(d.Name, r.view.Shards()) != s.index {
			continue
		}
		m, ok := r.view.Mirror(d.Name)
		if !ok {
			r.log.Info("mirror created", mirror.KeyMirror, d.Name)
			return []statestore.Record{statestore.Mirror{Definition: d, Declared: true, Version: 1}}
		}
		if sameDefinition(m.Definition, d) && m.Declared {
			continue
		}
		r.log.Info("mirror altered", mirror.KeyMirror, d.Name)
		m.Declared = true
		if !sameDefinition(m.Definition, d) {
			m = redefined(m, d)
		}
		return []statestore.Record{m}
	}
	return nil
}

// owesMirrors reports whether a mirror of the configuration file is still to be created here.
func (r *runner) owesMirrors() bool {
	definitions := r.declared.Load()
	return definitions != nil && len(r.shards) > 0 && slices.ContainsFunc(*definitions, func(d mirror.Definition) bool {
		_, known := r.view.Mirror(d.Name)
		return !known && r.shards[mirror.ShardOfMirror(d.Name, r.view.Shards())] != nil
	})
}

// sameDefinition compares as stored: a missing list and an empty one are the same.
func sameDefinition(a, b mirror.Definition) bool {
	return reflect.DeepEqual(withoutNil(a), withoutNil(b))
}

func withoutNil(d mirror.Definition) mirror.Definition {
	for _, list := range []*[]string{
		&d.Source.BootstrapServers, &d.TopicsInclude, &d.TopicsExclude,
		&d.TopicPropertiesExclude, &d.GroupsInclude, &d.GroupsExclude, &d.ACLsInclude,
	} {
		if *list == nil {
			*list = []string{}
		}
	}
	return d
}

func (r *runner) isDeclared(mirrorName string) bool {
	if definitions := r.declared.Load(); definitions != nil {
		for _, d := range *definitions {
			if d.Name == mirrorName {
				return true
			}
		}
	}
	return false
}

// Pauses between looks for records that are of no use any more: as a rule, and after topics came or went.
const (
	sweepTime  = time.Hour
	sweepPause = 5 * time.Second
)

// outcomeAge is how long outcomes are kept: longer than the commands they answer.
const outcomeAge = 8 * 24 * time.Hour

// sweep removes what is of no use any more, once an hour and after topics came or went: outcomes that nobody can ask for,
// and records of partitions that do not exist.
func (r *runner) sweep(s *shard, now time.Time) (records []statestore.Record) {
	if now.Before(s.sweep) && (s.swept == r.index.version || now.Before(s.sweep.Add(sweepPause-sweepTime))) {
		return nil
	}
	s.sweep, s.swept = now.Add(sweepTime), r.index.version
	for _, rec := range r.view.Records(s.index) {
		if o, ok := rec.(statestore.CommandOutcome); ok && now.Sub(time.UnixMilli(o.AtMillis)) > outcomeAge {
			records = append(records, statestore.Tombstone{Of: o})
		}
	}
	return append(records, r.orphans(s)...)
}

// orphans are the records of partitions that no topic has any more: their mirror was deleted, or the source topic is
// another one now. They are removed only where the mirror's own records are known.
func (r *runner) orphans(s *shard) (records []statestore.Record) {
	for _, state := range r.view.PartitionsOfShard(s.index) {
		if !r.view.Loaded(mirror.ShardOfMirror(state.Mirror, r.view.Shards())) {
			continue
		}
		if e := r.index.find(state.Mirror, state.Topic); e != nil && (e.topic.SourceID == state.TopicID || e.topic.SourceID.IsZero()) {
			continue
		}
		records = append(records, statestore.Tombstone{Of: state},
			statestore.Tombstone{Of: statestore.LastMirrorEpoch{Partition: state.Partition}},
			statestore.Tombstone{Of: statestore.SourceEpochs{Partition: state.Partition}})
	}
	return records
}
