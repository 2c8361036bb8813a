package statestore

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"mirrord/internal/mirror"
)

// View is __mirror_state in memory: all shards, as committed. It is safe for concurrent use. Slices and maps inside of
// what the getters return are shared and must not be changed.
type View struct {
	mu      sync.RWMutex
	changed chan struct{} // closed and replaced at each change
	topicID mirror.TopicID
	unknown int64 // records skipped
	version int64 // see Version
	told    int64 // of them, already told

	shards     []*shardView
	mirrors    map[string]*mirrorView
	outcomes   map[[16]byte]mirror.Outcome
	identity   *ClusterIdentity
	commands   map[int32][]SubmittedCommand // by partition of __mirror_commands
	badCommand int64                        // records of __mirror_commands that could not be read
	seen       map[string]bool              // see Seen
	before     map[int32]bool               // see Commanded, by partition of __mirror_commands; nil: the topic was not there
}

// shardView is one shard: what its log holds, and how far it was read.
type shardView struct {
	entries  map[string]Record // by key; what a new state topic is filled with
	next     int64             // next offset to read
	applied  int64             // records read since the topic was created
	loaded   bool
	decided  bool // what was decided when it was read first was read
	judged   bool // empty is decided
	empty    bool // held nothing when it was first read to its end
	bad      *BadRecord
	badTold  bool
	claim    *ShardClaim
	report   ShardReport
	reported map[mirror.Partition]ReportedPosition
	cursor   int64
}

// mirrorView indexes what belongs to one mirror.
type mirrorView struct {
	definition *Mirror
	topics     map[string]Topic
	partitions map[mirror.Partition]PartitionState
	lme        map[mirror.Partition]mirror.Position
	epochs     map[mirror.Partition][]mirror.Position
	acls       map[string]OwnedACL
	groups     map[string]GroupStatus
	settings   map[string]TopicSettings
	refresh    RefreshStatus
}

// BadRecord is a record that cannot be read. Its shard is not read any further.
type BadRecord struct {
	Offset int64
	Err    error
}

// BadRecordFix is what an operator can do about one. The topic that takes the place of a deleted one is written by whoever
// has read all but that record (see View.lost).
const BadRecordFix = "run the release that wrote it, if a newer one did; else delete the topic " + StateTopic +
	" while an instance runs, which creates it again with all that it has read (see operations.md)"

func (b BadRecord) String() string {
	return fmt.Sprintf("stopped at offset %d of %s, a record that cannot be read: %v", b.Offset, StateTopic, b.Err)
}

// NewView makes a view of a state topic with that many shards, none of them read yet.
func NewView(shards int32) *View {
	v := &View{
		changed: make(chan struct{}), mirrors: map[string]*mirrorView{}, outcomes: map[[16]byte]mirror.Outcome{},
		commands: map[int32][]SubmittedCommand{}, seen: map[string]bool{}, before: map[int32]bool{},
	}
	v.resize(shards)
	return v
}

func (v *View) resize(shards int32) {
	for range shards {
		v.shards = append(v.shards, &shardView{entries: map[string]Record{}})
	}
}

// Changed is closed at the next change. It is a level trigger: take the channel, look, then wait for it.
func (v *View) Changed() <-chan struct{} {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.changed
}

// Version rises with each change that matters to what is wished, decided or allowed. What only tells how things are
// going (positions, source epochs, groups, ACLs, settings of topics) does not count.
func (v *View) Version() int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.version
}

// Shards is the number of partitions of the state topic; 0: not known yet.
func (v *View) Shards() int32 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return int32(len(v.shards))
}

// Fresh reports whether the state topic held nothing at all when it was first read to its end. Trust it only once all
// shards are loaded.
func (v *View) Fresh() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.shards) > 0 && !slices.ContainsFunc(v.shards, func(s *shardView) bool { return !s.judged || !s.empty })
}

// Commanded reports whether commands had been given on this destination before it was first read: those that came since
// say nothing about what was there. What could not be read counts as holding some.
func (v *View) Commanded() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.before == nil {
		return false
	}
	for p := range int32(len(v.shards)) {
		if given, read := v.before[p]; given || !read {
			return true
		}
	}
	return false
}

// Loaded reports whether a shard was read to the end that it had when reading began.
func (v *View) Loaded(shard int32) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.has(shard) && v.shards[shard].loaded
}

// Decided reports whether a shard was read as far as its transactions were decided: one that a dead instance has left open
// keeps what follows from being read until somebody ends it.
func (v *View) Decided(shard int32) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.has(shard) && (v.shards[shard].decided || v.shards[shard].loaded)
}

// BadRecord is the record that stopped a shard, if any.
func (v *View) BadRecord(shard int32) (BadRecord, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.has(shard) || v.shards[shard].bad == nil {
		return BadRecord{}, false
	}
	return *v.shards[shard].bad, true
}

// BadRecords are the records that stopped their shards, by shard.
func (v *View) BadRecords() map[int32]BadRecord {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := map[int32]BadRecord{}
	for i, s := range v.shards {
		if s.bad != nil {
			all[int32(i)] = *s.bad
		}
	}
	return all
}

// newlyBad gives a shard's bad record the first time it is asked for.
func (v *View) newlyBad(shard int32) (BadRecord, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.shards[shard]
	if s.bad == nil || s.badTold {
		return BadRecord{}, false
	}
	s.badTold = true
	return *s.bad, true
}

// newlyUnknown is the number of skipped records since it was asked last.
func (v *View) newlyUnknown() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.unknown - v.told
	v.told = v.unknown
	return n
}

// Unknown is the number of records of unknown types that were skipped.
func (v *View) Unknown() int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.unknown
}

// Mirrors are all mirrors, sorted by name.
func (v *View) Mirrors() []Mirror {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var all []Mirror
	for _, m := range v.mirrors {
		if m.definition != nil {
			all = append(all, *m.definition)
		}
	}
	slices.SortFunc(all, func(a, b Mirror) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Mirror is one mirror.
func (v *View) Mirror(name string) (Mirror, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if m := v.mirrors[name]; m != nil && m.definition != nil {
		return *m.definition, true
	}
	return Mirror{}, false
}

// Topics are the topics of a mirror, sorted by name.
func (v *View) Topics(mirrorName string) []Topic {
	return sorted(v, mirrorName, func(m *mirrorView) map[string]Topic { return m.topics },
		func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// Topic is one topic of a mirror.
func (v *View) Topic(mirrorName, topic string) (Topic, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if m := v.mirrors[mirrorName]; m != nil {
		t, ok := m.topics[topic]
		return t, ok
	}
	return Topic{}, false
}

// Seen reports whether a record of the topic was ever read, of any mirror, also of one that is gone.
func (v *View) Seen(topic string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.seen[topic]
}

// TopicOwner is the mirror that a destination topic belongs to: one that has it and is not done with promoting it.
func (v *View) TopicOwner(topic string) (mirrorName string, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for name, m := range v.mirrors {
		if t, has := m.topics[topic]; has && (t.Wish != mirror.Stopped || !t.Promoted) {
			return name, true
		}
	}
	return "", false
}

// Partition is the state of one partition.
func (v *View) Partition(p mirror.Partition) (PartitionState, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if m := v.mirrors[p.Mirror]; m != nil {
		s, ok := m.partitions[p]
		return s, ok
	}
	return PartitionState{}, false
}

// Partitions are the partitions of a mirror, sorted by topic and index.
func (v *View) Partitions(mirrorName string) []PartitionState {
	return sorted(v, mirrorName, func(m *mirrorView) map[mirror.Partition]PartitionState { return m.partitions },
		comparePartitions)
}

// PartitionsOfShard are the partitions whose records a shard holds, sorted by topic and index.
func (v *View) PartitionsOfShard(shard int32) []PartitionState {
	v.mu.RLock()
	var all []PartitionState
	if v.has(shard) {
		for _, r := range v.shards[shard].entries {
			if s, ok := r.(PartitionState); ok {
				all = append(all, s)
			}
		}
	}
	v.mu.RUnlock()
	slices.SortFunc(all, comparePartitions)
	return all
}

func comparePartitions(a, b PartitionState) int {
	if c := cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Index, b.Index)); c != 0 {
		return c
	}
	return bytes.Compare(a.TopicID[:], b.TopicID[:])
}

// LastMirror is the position up to which both logs agree, as recorded by a stop.
func (v *View) LastMirror(p mirror.Partition) (mirror.Position, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if m := v.mirrors[p.Mirror]; m != nil {
		if at, ok := m.lme[p]; ok {
			return at, true
		}
	}
	return mirror.NoPosition, false
}

// Epochs are the recorded leader epochs of the source, rising.
func (v *View) Epochs(p mirror.Partition) []mirror.Position {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if m := v.mirrors[p.Mirror]; m != nil {
		return m.epochs[p]
	}
	return nil
}

// ACLs are the ACLs that a mirror has created, sorted.
func (v *View) ACLs(mirrorName string) []OwnedACL {
	return sorted(v, mirrorName, func(m *mirrorView) map[string]OwnedACL { return m.acls },
		func(a, b OwnedACL) int { return cmp.Compare(a.Binding, b.Binding) })
}

// Groups is what was last done for the groups of a mirror, sorted by name.
func (v *View) Groups(mirrorName string) []GroupStatus {
	return sorted(v, mirrorName, func(m *mirrorView) map[string]GroupStatus { return m.groups },
		func(a, b GroupStatus) int { return cmp.Compare(a.Group, b.Group) })
}

// Settings are the settings of a topic that a mirror has made or seen.
func (v *View) Settings(mirrorName, topic string) (TopicSettings, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if m := v.mirrors[mirrorName]; m != nil {
		s, ok := m.settings[topic]
		return s, ok
	}
	return TopicSettings{}, false
}

// RefreshStatus is what the metadata refresh of a mirror could not do when it last tried, and what it leaves alone.
func (v *View) RefreshStatus(mirrorName string) RefreshStatus {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if m := v.mirrors[mirrorName]; m != nil {
		return m.refresh
	}
	return RefreshStatus{}
}

// Claim is the last claim of a shard.
func (v *View) Claim(shard int32) (ShardClaim, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.has(shard) || v.shards[shard].claim == nil {
		return ShardClaim{}, false
	}
	return *v.shards[shard].claim, true
}

// ClaimOf is the last claim of the shard of a partition.
func (v *View) ClaimOf(p mirror.Partition) (ShardClaim, bool) {
	if n := v.Shards(); n > 0 {
		return v.Claim(mirror.ShardOf(p, n))
	}
	return ShardClaim{}, false
}

// Report is the owner's last word about a partition's positions.
func (v *View) Report(p mirror.Partition) (at ReportedPosition, owner string, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if len(v.shards) == 0 {
		return at, "", false
	}
	s := v.shards[mirror.ShardOf(p, int32(len(v.shards)))]
	at, ok = s.reported[p]
	return at, s.report.Owner, ok
}

// Cursor is the next command of a partition of __mirror_commands to execute.
func (v *View) Cursor(shard int32) int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.has(shard) {
		return 0
	}
	return v.shards[shard].cursor
}

// Commands are the commands of a shard that have no outcome yet and lie at or beyond its cursor, in order. Trust it
// only once the shard is loaded.
func (v *View) Commands(shard int32) []SubmittedCommand {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var waiting []SubmittedCommand
	if !v.has(shard) {
		return nil
	}
	for _, c := range v.commands[shard] {
		if _, done := v.outcomes[c.ID]; !done && c.Offset >= v.shards[shard].cursor {
			waiting = append(waiting, c)
		}
	}
	return waiting
}

// CommandsAfter are the commands of a shard, answered or not, that were given after the one at an offset and are selected.
// One whose submission was repeated was given when it was submitted first.
func (v *View) CommandsAfter(shard int32, offset int64, selected func(mirror.Command) bool) (later []SubmittedCommand) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := v.commands[shard]
	n, _ := slices.BinarySearchFunc(all, offset+1, func(c SubmittedCommand, at int64) int { return cmp.Compare(c.Offset, at) })
	for _, c := range all[n:] {
		if selected(c.Command) && !slices.ContainsFunc(all[:n], func(before SubmittedCommand) bool { return before.ID == c.ID }) {
			later = append(later, c)
		}
	}
	return later
}

// Outcome answers a command, if it was executed.
func (v *View) Outcome(id [16]byte) (mirror.Outcome, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	o, ok := v.outcomes[id]
	return o, ok
}

// Identity says whose destination this is, if that was recorded.
func (v *View) Identity() (ClusterIdentity, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.identity == nil {
		return ClusterIdentity{}, false
	}
	return *v.identity, true
}

// Records are all records of a shard in the order of their keys.
func (v *View) Records(shard int32) []Record {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !v.has(shard) {
		return nil
	}
	return v.shards[shard].records()
}

func (s *shardView) records() []Record {
	all := make([]Record, 0, len(s.entries))
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		all = append(all, s.entries[key])
	}
	return all
}

func (v *View) has(shard int32) bool { return shard >= 0 && int(shard) < len(v.shards) }

func sorted[K comparable, T any](v *View, mirrorName string, of func(*mirrorView) map[K]T, order func(a, b T) int) []T {
	v.mu.RLock()
	var all []T
	if m := v.mirrors[mirrorName]; m != nil {
		all = make([]T, 0, len(of(m)))
		for _, item := range of(m) {
			all = append(all, item)
		}
	}
	v.mu.RUnlock()
	slices.SortFunc(all, order)
	return all
}
