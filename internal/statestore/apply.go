package statestore

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/mirror"
)

// apply takes in what was read from one shard: its records in order, and the next offset to read. A record that cannot
// be read stops the shard in front of it.
func (v *View) apply(shard int32, records []*kgo.Record, next int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.shards[shard]
	if s.bad != nil {
		return
	}
	for _, r := range records {
		if r.Attrs.IsControl() {
			continue
		}
		decoded, err := DecodeRecord(r.Key, r.Value)
		if _, unknown := errors.AsType[*UnknownTypeError](err); unknown {
			v.unknown++
			s.applied++
			continue
		}
		if err != nil {
			s.bad, s.next = &BadRecord{r.Offset, err}, r.Offset
			v.version++
			v.signal()
			return
		}
		v.put(shard, string(r.Key), decoded)
		s.applied++
	}
	moved := s.next != next
	if s.next = next; moved || len(records) > 0 {
		v.signal()
	}
}

// stop ends the reading of a shard in front of something that cannot be read.
func (v *View) stop(shard int32, bad BadRecord) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shards[shard].bad = &bad
	v.version++
	v.signal()
}

func (v *View) signal() {
	close(v.changed)
	v.changed = make(chan struct{})
}

// put stores a record under its key and indexes it. A record that lies in another shard than its own, because the number
// of partitions was changed, gives way to one that does not.
func (v *View) put(shard int32, key string, r Record) {
	entries := v.shards[shard].entries
	of, deleted := r, false
	if t, ok := r.(Tombstone); ok {
		of, deleted = t.Of, true
		delete(entries, key)
	} else {
		entries[key] = r
	}
	switch of.(type) {
	case ShardReport, SourceEpochs, GroupStatus, OwnedACL, TopicSettings, RefreshStatus:
	default:
		v.version++
	}
	if home := of.Shard(int32(len(v.shards))); home != shard {
		if !v.has(home) || v.shards[home].entries[key] != nil {
			return
		}
	}
	if deleted {
		v.unindex(of)
		return
	}
	v.index(r)
}

func (v *View) of(mirrorName string) *mirrorView {
	m := v.mirrors[mirrorName]
	if m == nil {
		m = &mirrorView{
			topics: map[string]Topic{}, partitions: map[mirror.Partition]PartitionState{},
			lme: map[mirror.Partition]mirror.Position{}, epochs: map[mirror.Partition][]mirror.Position{},
			acls: map[string]OwnedACL{}, groups: map[string]GroupStatus{}, settings: map[string]TopicSettings{},
		}
		v.mirrors[mirrorName] = m
	}
	return m
}

func (v *View) index(r Record) {
	switch r := r.(type) {
	case LastMirrorEpoch:
		v.of(r.Mirror).lme[r.Partition] = r.Position
	case PartitionState:
		v.of(r.Mirror).partitions[r.Partition] = r
	case Mirror:
		v.of(r.Name).definition = &r
	case Topic:
		v.of(r.Mirror).topics[r.Name], v.seen[r.Name] = r, true
	case OwnedACL:
		v.of(r.Mirror).acls[r.Binding] = r
	case GroupStatus:
		v.of(r.Mirror).groups[r.Group] = r
	case TopicSettings:
		v.of(r.Mirror).settings[r.Topic] = r
	case RefreshStatus:
		v.of(r.Mirror).refresh = r
	case SourceEpochs:
		v.of(r.Mirror).epochs[r.Partition] = r.Epochs
	case CommandOutcome:
		v.outcomes[r.ID] = r.Outcome
	case ClusterIdentity:
		v.identity = &r
	default:
		v.indexShard(r)
	}
}

// indexShard indexes what belongs to a shard as such. Its own shard exists: put has looked.
func (v *View) indexShard(r Record) {
	switch r := r.(type) {
	case ShardClaim:
		v.shards[r.ShardIndex].claim = &r
	case CommandCursor:
		v.shards[r.ShardIndex].cursor = r.Next
	case ShardReport:
		s := v.shards[r.ShardIndex]
		s.report = r
		s.reported = make(map[mirror.Partition]ReportedPosition, len(r.Positions))
		for _, p := range r.Positions {
			s.reported[p.Partition] = p
		}
	}
}

func (v *View) unindex(r Record) {
	switch r := r.(type) {
	case LastMirrorEpoch:
		delete(v.of(r.Mirror).lme, r.Partition)
	case PartitionState:
		delete(v.of(r.Mirror).partitions, r.Partition)
	case Mirror:
		v.of(r.Name).definition = nil
	case Topic:
		delete(v.of(r.Mirror).topics, r.Name)
	case OwnedACL:
		delete(v.of(r.Mirror).acls, r.Binding)
	case GroupStatus:
		delete(v.of(r.Mirror).groups, r.Group)
	case TopicSettings:
		delete(v.of(r.Mirror).settings, r.Topic)
	case RefreshStatus:
		v.of(r.Mirror).refresh = RefreshStatus{}
	case SourceEpochs:
		delete(v.of(r.Mirror).epochs, r.Partition)
	case CommandOutcome:
		delete(v.outcomes, r.ID)
	case ClusterIdentity:
		v.identity = nil
	case ShardClaim:
		v.shards[r.ShardIndex].claim = nil
	case CommandCursor:
		v.shards[r.ShardIndex].cursor = 0
	case ShardReport:
		v.shards[r.ShardIndex].report, v.shards[r.ShardIndex].reported = ShardReport{}, nil
	}
}

// uncommanded notes that there is no topic of commands, so that all that it will ever hold is new.
func (v *View) uncommanded() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.before = nil
}

// beginCommands notes where a partition of __mirror_commands ends; the first time counts.
func (v *View) beginCommands(partition int32, end int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.before[partition]; !known && v.before != nil {
		v.before[partition] = end > 0
	}
}

// applyCommands takes in what was read from one partition of __mirror_commands. A command that cannot be read is
// counted and skipped: it has no id to answer to.
func (v *View) applyCommands(partition int32, records []*kgo.Record) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range records {
		if r.Attrs.IsControl() {
			continue
		}
		cmd, err := DecodeCommand(r.Key, r.Value)
		if err != nil {
			v.badCommand++
			continue
		}
		v.commands[partition] = append(v.commands[partition], SubmittedCommand{cmd, partition, r.Offset})
		v.version++
		v.signal()
	}
}

// forgetCommands drops the commands that lie below the log start and, after a takeover of the topic by a new one, all
// cursors, which counted the old one's offsets.
func (v *View) forgetCommands(partition int32, recreated bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.commands, partition)
	if recreated && v.has(partition) {
		v.shards[partition].cursor = 0
	}
}

// markLoaded notes that a shard was read to the end that it had when reading began.
func (v *View) markLoaded(shard int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.shards[shard]
	if s.loaded {
		return
	}
	s.loaded = true
	v.version++
	if !s.judged {
		s.judged, s.empty = true, s.applied == 0 && s.bad == nil
	}
	v.signal()
}

// markDecided notes that a shard was read to its last stable offset.
func (v *View) markDecided(shard int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.shards[shard]; !s.decided {
		s.decided = true
		v.version++
		v.signal()
	}
}

// begin sets the topic that is read from now on. With another one than before, everything that the view holds stays, as
// what the new topic is to be filled with, and reading begins anew. It reports whether the topic was replaced.
func (v *View) begin(id mirror.TopicID, shards int32) (replaced bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	replaced = v.topicID != id && !v.topicID.IsZero()
	v.topicID = id
	if len(v.shards) == 0 {
		v.resize(shards)
	}
	if replaced {
		for _, s := range v.shards {
			s.next, s.applied, s.loaded, s.decided, s.bad, s.badTold = 0, 0, false, false, nil, false
		}
	}
	v.version++
	v.signal()
	return replaced
}

// position is where reading of a shard goes on, and of which topic.
func (v *View) position(shard int32) (next int64, id mirror.TopicID) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.shards[shard].next, v.topicID
}

func (v *View) id() mirror.TopicID {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.topicID
}

// lost lists the records of a shard that a new state topic does not hold yet: nothing as soon as it holds anything, for
// its first transaction writes all of them again.
func (v *View) lost(shard int32) []Record {
	v.mu.RLock()
	defer v.mu.RUnlock()
	s := v.shards[shard]
	if !s.loaded || s.applied > 0 {
		return nil
	}
	return s.records()
}
