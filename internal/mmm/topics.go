package mmm

import (
	"fmt"
	"maps"
	"slices"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// internalTopics belong to a cluster itself or to mirrord, whatever the cluster says about them.
var internalTopics = []string{
	"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata",
	"__mirror_state", "__mirror_commands",
}

// topicInfo is one topic as a cluster described it.
type topicInfo struct {
	id         mirror.TopicID
	partitions int32
	replicas   int // of its first partition
	internal   bool
	err        error // cannot be described now: neither there nor gone
	holdsData  bool  // destination only, and only where the decision needs it: some partition has an offset in use
	remains    bool  // destination only: what a mirror left here whose state is gone
	slot       int8  // destination only, of a topic that is to become a mirror's: of the producer ids to come
}

// catalog holds the topics of a cluster by name. A topic that is not in it does not exist: absence was confirmed where it
// matters (see suspects).
type catalog map[string]topicInfo

// internalTopic reports whether a topic is never mirrored.
func internalTopic(name string, t topicInfo) bool {
	return t.internal || slices.Contains(internalTopics, name)
}

// topicsInput is all that the decision about topics looks at.
type topicsInput struct {
	mirror              statestore.Mirror
	topics              []statestore.Topic // of the mirror
	source, destination catalog
	taken               func(topic string) (by string, ok bool) // by another mirror, which goes first
	states              map[string][]statestore.PartitionState  // of the mirror, by topic name
	trouble             map[string]string                       // what else is the matter with a topic, by name
	busy                map[string]bool                         // topics that are being recreated just now
	young               map[string]bool                         // topics that were created and are not shown by the brokers yet
	asked               map[string]bool                         // topics that the destination was asked for; nil: all
	circles             circles                                 // what the source takes from here
}

// topicPlan is what is to be done about one topic, in the order of the fields. If a deed is refused, before is kept and
// gets the reason as its message.
type topicPlan struct {
	create bool  // at the destination, with after.Partitions partitions
	grow   int32 // at the destination, to that many partitions; 0: no
	before statestore.Topic
	after  statestore.Topic
	why    string // for the log; empty: nothing happened that an operator wants to read
}

func (p topicPlan) changes() bool { return p.create || p.grow > 0 || p.before != p.after }

// selection is what a mirror's patterns say about topic names.
type selection struct{ include, exclude, pendingInclude, pendingExclude mirror.Patterns }

// selectionOf compiles the patterns of a stored definition. Bad items were refused when it was made; one that slipped
// through selects nothing.
func selectionOf(m statestore.Mirror) selection {
	parse := func(items []string) mirror.Patterns {
		ps, _ := mirror.ParsePatterns(items)
		return ps
	}
	return selection{parse(m.TopicsInclude), parse(m.TopicsExclude), parse(m.PendingInclude), parse(m.PendingExclude)}
}

// discovers reports whether a topic that appears at the source is to be mirrored. Patterns of the definition and those
// given to start are independent; topics_exclude binds both.
func (s selection) discovers(name string) bool {
	if s.exclude.Match(name) {
		return false
	}
	return s.include.Match(name) || s.pendingInclude.Match(name) && !s.pendingExclude.Match(name)
}

// unmatched lists the items that match no topic of the source.
func (s selection) unmatched(source catalog) (items []string) {
	names := slices.Collect(maps.Keys(source))
	for _, p := range slices.Concat(s.include, s.pendingInclude) {
		if !slices.ContainsFunc(names, p.Match) {
			items = append(items, p.String())
		}
	}
	return items
}

// planTopics decides about all topics of a mirror: those it has, then discovery. notes says what was left alone and why.
func planTopics(in topicsInput) (plans []topicPlan, notes map[string]string) {
	sel, known := selectionOf(in.mirror), map[string]bool{}
	notes = map[string]string{}
	for _, t := range slices.SortedFunc(slices.Values(in.topics), byName) {
		known[t.Name] = true
		if p := in.known(t, sel); p.changes() {
			plans = append(plans, p)
		}
		if in.left(t, sel) {
			notes[t.Name] = fmt.Sprintf("is selected again after it was excluded, and stays %s: it may be in use; start it to mirror it", mirror.Stopped)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.source)) {
		s := in.source[name]
		if known[name] || s.err != nil || !sel.discovers(name) {
			continue
		}
		if internalTopic(name, s) {
			continue
		}
		if other, ok := in.taken(name); ok {
			notes[name] = fmt.Sprintf("not mirrored: the topic is in mirror %s", other)
			continue
		}
		plans = append(plans, in.discovered(name, s))
	}
	return plans, notes
}

func byName(a, b statestore.Topic) int {
	if a.Name < b.Name {
		return -1
	} else if a.Name > b.Name {
		return 1
	}
	return 0
}

// known decides about a topic that has a record. A paused topic is left alone, a finding stays until recover.
func (in topicsInput) known(t statestore.Topic, sel selection) topicPlan {
	p := topicPlan{before: t, after: t}
	switch {
	case in.busy[t.Name], t.Wish == mirror.Stopped: // whoever may write to it since, only a command takes that away
		return p
	case sel.exclude.Match(t.Name):
		p.after.Wish, p.after.ByCommand, p.after.Promoted, p.why = mirror.Stopped, false, false, "topic excluded"
		return p
	case in.asked != nil && !in.asked[t.Name]: // started since the look at the destination, which says nothing of it
		return p
	case unsettled(t):
		return in.settleLost(p)
	case t.Wish == mirror.Paused || t.Finding.Message != "":
		return p
	}
	p.after.Promoted = false
	return in.fromSource(p)
}

// left reports whether patterns select a topic that was stopped because they had excluded it.
func (in topicsInput) left(t statestore.Topic, sel selection) bool {
	s, ok := in.source[t.Name]
	return t.Wish == mirror.Stopped && !t.ByCommand && ok && s.err == nil && sel.discovers(t.Name)
}

// fromSource compares a topic that is wished MIRRORING with the source.
func (in topicsInput) fromSource(p topicPlan) topicPlan {
	t := p.before
	s, ok := in.source[t.Name]
	switch {
	case !ok && t.SourceID.IsZero():
		p.after.Message = "the source has no such topic"
	case !ok:
		p.after.Finding = statestore.Finding{
			Kind:    mirror.SourceGone,
			Message: fmt.Sprintf("source topic %s (id %s) was deleted; stop it, or recover it once it is back", t.Name, t.SourceID),
		}
	case s.err != nil:
		p.after.Message = "source topic: " + s.err.Error()
	case internalTopic(t.Name, s):
		p.after.Message = "an internal topic is never mirrored"
	case !t.SourceID.IsZero() && s.id != t.SourceID:
		p.after.Finding = statestore.Finding{
			Kind: mirror.SourceGone,
			Message: fmt.Sprintf("source topic %s was deleted and created again: its id was %s and is now %s; "+
				"recover --reseed copies the new one, stop keeps the old copy", t.Name, t.SourceID, s.id),
		}
	case s.partitions < t.Partitions:
		p.after.Finding = statestore.Finding{
			Kind: mirror.SourceGone,
			Message: fmt.Sprintf("source topic %s has %s and had %d: it was created again; "+
				"recover --reseed copies the new one, stop keeps the old copy", t.Name, mirror.Count(s.partitions, "partition"), t.Partitions),
		}
	case t.DestinationID.IsZero():
		return in.firstTime(p, s)
	default:
		return in.again(p, s)
	}
	return p
}

// firstTime decides about a topic whose destination topic is not settled yet.
func (in topicsInput) firstTime(p topicPlan, s topicInfo) topicPlan {
	name := p.before.Name
	d, ok := in.destination[name]
	p.after.SourceID, p.after.Partitions, p.after.Message, p.after.Slot = s.id, s.partitions, "", min(d.slot, mirror.Slots-1)
	if other, ok := in.taken(name); ok {
		p.after = p.before
		p.after.Message = fmt.Sprintf("the topic is in mirror %s", other)
		return p
	}
	switch {
	case !ok:
		p.create = true
	case d.err != nil:
		p.after = p.before
		p.after.Message = "destination topic: " + d.err.Error()
	case d.internal:
		p.after = p.before
		p.after.Message = "the destination has an internal topic of this name"
	case d.slot >= mirror.Slots && in.mirror.TransactionsMode == mirror.Exact:
		p.after = p.before
		p.after.Message = noSlot
	case in.circular(&p, d, s):
	case d.partitions > s.partitions:
		p.after.DestinationID = d.id
		p.after.Finding = statestore.Finding{
			Kind: mirror.Diverged,
			Message: fmt.Sprintf("destination topic %s has %d partitions, the source has %d, and partitions cannot be taken away; "+
				"recover mirrors the first %d and leaves the others alone, recover --reseed recreates the topic, stop leaves it as it is",
				name, d.partitions, s.partitions, s.partitions),
		}
	case d.partitions < s.partitions && !d.holdsData:
		p.after.DestinationID, p.after.Unready, p.grow, p.why = d.id, true, s.partitions, "topic taken over"
	default: // with fewer partitions and data: what is there is compared first, see again
		p.after.DestinationID, p.after.Unready, p.after.Partitions, p.why = d.id, true, d.partitions, "topic taken over"
	}
	return p
}

// circular decides about a topic that would go in a circle, or of which that is not known: nothing is begun. The topic that
// is there is named all the same, for the partitions to fail.
func (in topicsInput) circular(p *topicPlan, d, s topicInfo) bool {
	f, known := in.circles.finding(p.before.Name)
	switch {
	case !known:
		p.after = p.before
		if err := in.circles.err; err != nil {
			p.after.Message = "whether it would go in a circle is not known: " + err.Error()
		}
	case f.Message != "":
		p.after.Finding = f
		if p.before.DestinationID.IsZero() {
			p.after.DestinationID, p.after.Unready, p.after.Partitions = d.id, true, min(d.partitions, s.partitions)
		}
	default:
		return false
	}
	return true
}

// again compares a topic whose destination topic is known with the destination.
func (in topicsInput) again(p topicPlan, s topicInfo) topicPlan {
	t := p.before
	d, ok := in.destination[t.Name]
	p.after.Message = in.trouble[t.Name]
	switch {
	case ok && d.err == nil && t.Unready && in.circular(&p, d, s):
	case !ok && in.young[t.Name]:
		p.after.Message = "the destination does not show the new topic yet"
	case !ok:
		p.after.Finding = statestore.Finding{
			Kind:    mirror.DestinationGone,
			Message: fmt.Sprintf("destination topic %s (id %s) was deleted by somebody; recover creates and copies it again", t.Name, t.DestinationID),
		}
	case d.err != nil:
		p.after.Message = "destination topic: " + d.err.Error()
	case d.id != t.DestinationID:
		p.after.Finding = statestore.Finding{
			Kind: mirror.DestinationGone,
			Message: fmt.Sprintf("destination topic %s was deleted and created again by somebody: its id was %s and is now %s; "+
				"recover takes the new one", t.Name, t.DestinationID, d.id),
		}
	case d.partitions > s.partitions:
		p.after.Message = fmt.Sprintf("destination topic has %d partitions, the source %d: the others are not mirrored", d.partitions, s.partitions)
	case s.partitions > t.Partitions && !in.agreed(t):
		p.after.Message = fmt.Sprintf("the source has %d partitions: grown once the first %d agree with it", s.partitions, t.Partitions)
	case s.partitions > t.Partitions:
		p.after.Partitions, p.why = s.partitions, "partitions added"
		if d.partitions < s.partitions {
			p.grow = s.partitions
		}
	}
	return p
}

// agreed reports whether every partition that a topic has was compared with the source and found to be its prefix: a
// topic that may be somebody else's is not grown.
func (in topicsInput) agreed(t statestore.Topic) bool {
	settled := int32(0)
	for _, p := range in.states[t.Name] {
		if p.TopicID == t.SourceID && p.Index < t.Partitions && compared(p) {
			settled++
		}
	}
	return settled == t.Partitions
}

func compared(p statestore.PartitionState) bool {
	switch p.State {
	case mirror.Unknown, mirror.LogTruncation:
		return false
	case mirror.Failed:
		return p.Kind != mirror.Diverged && p.Previous != mirror.LogTruncation
	default:
		return true
	}
}

// discovered makes the record of a topic that patterns select. If the destination has no such topic, its creation
// settles who owns it; otherwise the record is written first and acted upon in the next cycle, when the records of other
// mirrors are seen too.
func (in topicsInput) discovered(name string, s topicInfo) topicPlan {
	t := statestore.Topic{Mirror: in.mirror.Name, Name: name, Wish: mirror.Mirroring}
	p := topicPlan{before: t, after: t}
	switch d, exists := in.destination[name]; {
	case !exists:
		p = in.firstTime(p, s)
	case d.remains:
		return in.lost(name)
	}
	p.why = "topic discovered"
	return p
}

// suspects lists the topics about which a finding would be made, to be asked for by name before one is.
func suspects(topics []statestore.Topic, cluster catalog, idOf func(statestore.Topic) mirror.TopicID) (names []string) {
	for _, t := range topics {
		if t.Wish != mirror.Mirroring || idOf(t).IsZero() {
			continue
		}
		if info, ok := cluster[t.Name]; !ok || info.err == nil && info.id != idOf(t) {
			names = append(names, t.Name)
		}
	}
	return names
}

// mergeTopic puts a decision on top of the record as it is now: a command may have changed the wish since the record
// was read, and a command always wins. False: the decision is about something that has passed.
func mergeTopic(now, before, after statestore.Topic) (statestore.Topic, bool) {
	if now.SourceID != before.SourceID || now.DestinationID != before.DestinationID || now.Rearm != before.Rearm ||
		now.Wish != before.Wish {
		return now, false
	}
	merged := now
	merged.SourceID, merged.DestinationID, merged.Partitions = after.SourceID, after.DestinationID, after.Partitions
	merged.Slot = after.Slot
	merged.Message, merged.Finding, merged.Promoted = after.Message, after.Finding, after.Promoted
	if after.Unready != before.Unready {
		merged.Unready = after.Unready
	}
	if after.Wish != before.Wish {
		merged.Wish, merged.ByCommand = after.Wish, after.ByCommand
	}
	merged.Rearm = after.Rearm
	return merged, true
}
