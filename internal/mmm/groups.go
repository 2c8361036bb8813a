package mmm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/statestore"
)

// groupSeen is one group as its cluster described it.
type groupSeen struct {
	kind    string // kafka.ClassicGroup, …; empty: it does not exist
	active  bool
	offsets map[kafka.TopicPartition]position
	failed  map[kafka.TopicPartition]error
	err     error // nothing of the above is known
}

// bounds are a destination partition's log start offset and high watermark.
type bounds struct {
	start, end int64
	err        error
}

// groupCase is all that the decision about one group looks at.
type groupCase struct {
	name        string
	source      groupSeen
	destination groupSeen
	excluded    bool
	rows        []statestore.GroupRow // as last recorded
	bounds      map[kafka.TopicPartition]bounds
	mode        func(topic string, partition int32) syncMode
	// vouched lists topics of which the source confirmed that they are there: an offset missing there was deleted.
	vouched  map[string]bool
	now      time.Time
	recommit time.Duration // age at which an unchanged offset is committed again; 0: never
}

// groupPlan is what is to be done for a group, and what its record says once it is done.
type groupPlan struct {
	name   string
	kind   string
	rows   []statestore.GroupRow
	commit map[kafka.TopicPartition]position
	remove []kafka.TopicPartition
}

const (
	reasonActive   = "active on the destination"
	reasonAhead    = "ahead on the destination"
	reasonExcluded = "excluded by groups_include or groups_exclude"
	reasonStopping = "the topic is being stopped"
)

func (p groupPlan) idle() bool { return len(p.commit) == 0 && len(p.remove) == 0 }

// plan decides about all partitions of a group.
func (c groupCase) plan() groupPlan {
	p := groupPlan{name: c.name, kind: c.source.kind, commit: map[kafka.TopicPartition]position{}}
	if p.kind == "" {
		p.kind = c.destination.kind
	}
	recorded := map[kafka.TopicPartition]statestore.GroupRow{}
	for _, r := range c.rows {
		recorded[kafka.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = r
	}
	all := map[kafka.TopicPartition]bool{}
	for tp := range recorded {
		all[tp] = true
	}
	for tp := range c.source.offsets {
		all[tp] = true
	}
	for _, tp := range slices.SortedFunc(maps.Keys(all), compareTP) {
		old, had := recorded[tp]
		if row, keep := c.row(&p, tp, old, had); keep {
			p.rows = append(p.rows, row)
		}
	}
	return p
}

func compareTP(a, b kafka.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// row decides about one partition and gives its row.
func (c groupCase) row(p *groupPlan, tp kafka.TopicPartition, old statestore.GroupRow, had bool) (statestore.GroupRow, bool) {
	mode := c.mode(tp.Topic, tp.Partition)
	if mode == syncNot {
		return old, had
	}
	row := old
	if !had {
		row = statestore.GroupRow{Topic: tp.Topic, Partition: tp.Partition, SourceOffset: -1, DestinationOffset: -1}
	}
	row.Status, row.Reason = "", ""
	if mode == syncNote {
		return c.note(row, tp, old, had)
	}
	if c.excluded {
		row.Status, row.Reason = StatusSkipped, reasonExcluded
		return row, had
	}
	if err := c.trouble(tp); err != nil {
		row.Status, row.Reason = StatusFailed, err.Error()
		return row, true
	}
	oc := offsetCase{written: row.DestinationOffset, start: c.bounds[tp].start, end: c.bounds[tp].end, final: mode == syncFinal}
	if at, ok := c.source.offsets[tp]; ok {
		oc.source = &at
		row.SourceOffset, row.Metadata = at.offset, at.metadata
	} else if !c.vouched[tp.Topic] {
		return old, had // not seen is not deleted
	}
	if at, ok := c.destination.offsets[tp]; ok {
		oc.destination = &at
	}
	return c.judge(p, tp, row, oc)
}

// note records what the source says of a partition that is being stopped.
func (c groupCase) note(row statestore.GroupRow, tp kafka.TopicPartition, old statestore.GroupRow, had bool) (statestore.GroupRow, bool) {
	at, ok := c.source.offsets[tp]
	if c.excluded || !ok {
		return old, had
	}
	row.SourceOffset, row.Metadata = at.offset, at.metadata
	row.Status, row.Reason = StatusSkipped, reasonStopping
	return row, true
}

// trouble is why nothing can be said about a partition.
func (c groupCase) trouble(tp kafka.TopicPartition) error {
	kinds := c.source.kind != "" && c.destination.kind != "" && isShare(c.source) != isShare(c.destination)
	switch {
	case c.source.err != nil:
		return fmt.Errorf("source: %w", c.source.err)
	case c.source.failed[tp] != nil:
		return fmt.Errorf("source: %w", c.source.failed[tp])
	case kinds:
		return fmt.Errorf("the destination has a %s group of this name, the source a %s group", c.destination.kind, c.source.kind)
	case c.destination.err != nil:
		return fmt.Errorf("destination: %w", c.destination.err)
	case c.destination.failed[tp] != nil:
		return fmt.Errorf("destination: %w", c.destination.failed[tp])
	}
	if err := c.bounds[tp].err; err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	return nil
}

func isShare(g groupSeen) bool { return g.kind == kafka.ShareGroup }

// judge turns the verdict about an offset into a deed and a row.
func (c groupCase) judge(p *groupPlan, tp kafka.TopicPartition, row statestore.GroupRow, oc offsetCase) (statestore.GroupRow, bool) {
	verdict := oc.decide()
	if verdict == nothing {
		return row, false
	}
	if verdict == remove {
		if c.destination.active {
			row.Status, row.Reason = StatusSkipped, reasonActive
			return row, true
		}
		p.remove = append(p.remove, tp)
		return row, false
	}
	target, clamped := oc.target()
	row.Status = StatusSynced
	if clamped {
		row.Status, row.Reason = StatusClamped, fmt.Sprintf("the destination's log covers %d to %d", oc.start, oc.end)
	}
	switch {
	case verdict == ahead:
		row.Status, row.Reason = StatusSkipped, reasonAhead
	case verdict == level && (c.destination.active || !c.aged(row)):
		if row.DestinationOffset != target.offset { // somebody else has committed the same: it is ours to keep from now on
			row.DestinationOffset, row.CommittedAtMillis = target.offset, c.now.UnixMilli()
		}
	case c.destination.active:
		row.Status, row.Reason = StatusSkipped, reasonActive
	default:
		p.commit[tp] = target
		row.DestinationOffset, row.CommittedAtMillis = target.offset, c.now.UnixMilli()
	}
	return row, true
}

// aged reports whether an offset is to be committed again before the destination lets it expire.
func (c groupCase) aged(row statestore.GroupRow) bool {
	return c.recommit > 0 && row.CommittedAtMillis > 0 && row.DestinationOffset >= 0 &&
		c.now.Sub(time.UnixMilli(row.CommittedAtMillis)) >= c.recommit
}

// failed takes back what a plan said about partitions for which the deed was refused.
func (p *groupPlan) failed(errs map[kafka.TopicPartition]error, before []statestore.GroupRow) {
	old := map[kafka.TopicPartition]statestore.GroupRow{}
	for _, r := range before {
		old[kafka.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = r
	}
	for i, r := range p.rows {
		tp := kafka.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		err := errs[tp]
		if err == nil {
			continue
		}
		was, had := old[tp]
		if !had {
			was = statestore.GroupRow{DestinationOffset: -1}
		}
		r.DestinationOffset, r.CommittedAtMillis = was.DestinationOffset, was.CommittedAtMillis
		r.Status, r.Reason = StatusFailed, "destination: "+err.Error()
		if kafka.GroupActive(err) { // it has got members since it was looked at
			r.Status, r.Reason = StatusSkipped, reasonActive
		}
		p.rows[i] = r
	}
	for _, tp := range p.remove {
		if was, had := old[tp]; had && errs[tp] != nil {
			was.Status, was.Reason = StatusFailed, "destination: "+errs[tp].Error()
			p.rows = append(p.rows, was)
		}
	}
}

// worst is the status that a group's rows add up to; empty if it has none.
func worst(rows []statestore.GroupRow) (status, reason string) {
	rank := -1
	for _, r := range rows {
		if at := slices.Index(statuses, r.Status); at > rank {
			rank, status, reason = at, r.Status, r.Reason
		}
	}
	return status, reason
}
