package mmm

import (
	"context"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// groupsSeen are the groups of a cluster, as far as a mirror is about them.
type groupsSeen struct {
	byName   map[string]groupSeen
	listErr  error           // the list is not complete
	shareErr error           // share groups could not be asked
	vouched  map[string]bool // see groupCase
}

// groupSelection is what a mirror's patterns say about groups.
type groupSelection struct{ include, exclude mirror.Patterns }

func groupSelectionOf(m statestore.Mirror) groupSelection {
	include, _ := mirror.ParsePatterns(m.GroupsInclude)
	exclude, _ := mirror.ParsePatterns(m.GroupsExclude)
	return groupSelection{include, exclude}
}

func (s groupSelection) selects(group string) bool {
	return s.include.Match(group) && !s.exclude.Match(group)
}

// groups reads what the source's groups have committed in the mirror's topics. Groups that were mirrored before are
// asked for by name, so that a list which is not complete deletes nothing.
func (o observer) groups(ctx context.Context, src *kafka.Cluster, m statestore.Mirror) groupsSeen {
	seen := groupsSeen{byName: map[string]groupSeen{}, vouched: map[string]bool{}}
	sel := groupSelectionOf(m)
	if len(m.GroupsInclude) == 0 {
		return seen
	}
	list, err := within(ctx, o.timeout, src.ListGroups)
	seen.listErr = err
	kinds := map[string]string{}
	for _, g := range list {
		if sel.selects(g.ID) {
			kinds[g.ID] = g.Type
		}
	}
	recorded := o.view.Groups(o.name)
	var gone []string
	for _, g := range recorded {
		if _, listed := kinds[g.Group]; !listed && sel.selects(g.Group) {
			kinds[g.Group] = g.Type
			gone = append(gone, g.Group)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	seen.shareErr = o.offsets(ctx, src, kinds, seen.byName)
	for _, name := range gone {
		if g := seen.byName[name]; g.err == nil && len(g.offsets) == 0 {
			g.kind = ""
			seen.byName[name] = g
		}
	}
	o.narrow(seen.byName)
	o.vouch(ctx, src, recorded, seen)
	return seen
}

// offsets fetches the committed offsets of groups by kind. The error is about share groups as a whole.
func (o observer) offsets(ctx context.Context, c *kafka.Cluster, kinds map[string]string, into map[string]groupSeen) (shareErr error) {
	var plain, share []string
	for name, kind := range kinds {
		if kind == kafka.ShareGroup {
			share = append(share, name)
		} else {
			plain = append(plain, name)
		}
	}
	slices.Sort(plain)
	slices.Sort(share)
	if len(plain) > 0 {
		for name, g := range c.FetchOffsets(ctx, plain...) {
			into[name] = seenOffsets(kinds[name], g)
		}
	}
	if len(share) == 0 {
		return nil
	}
	for name, g := range c.FetchShareOffsets(ctx, share...) {
		into[name] = seenShare(g)
		if kafka.UnsupportedVersion(g.Err) {
			shareErr = g.Err
		}
	}
	return shareErr
}

func seenOffsets(kind string, g kafka.GroupOffsets) groupSeen {
	s := groupSeen{kind: kind, offsets: map[kafka.TopicPartition]position{}, failed: g.Failed, err: unlessGone(g.Err)}
	for tp, at := range g.Offsets {
		s.offsets[tp] = position{at.Offset, at.Metadata}
	}
	return s
}

// unlessGone: a group that is not there has no offsets, which is no error.
func unlessGone(err error) error {
	if kafka.GroupNotFound(err) {
		return nil
	}
	return err
}

func seenShare(g kafka.ShareOffsets) groupSeen {
	s := groupSeen{kind: kafka.ShareGroup, offsets: map[kafka.TopicPartition]position{}, failed: g.Failed, err: unlessGone(g.Err)}
	for tp, start := range g.Starts {
		if start >= 0 {
			s.offsets[tp] = position{offset: start}
		}
	}
	return s
}

// narrow forgets what groups have committed in topics that the mirror has nothing to do with.
func (o observer) narrow(groups map[string]groupSeen) {
	mine := map[string]bool{}
	for _, t := range o.view.Topics(o.name) {
		mine[t.Name] = true
	}
	for _, g := range groups {
		for tp := range g.offsets {
			if !mine[tp.Topic] {
				delete(g.offsets, tp)
			}
		}
	}
}

// vouch finds out for which topics a missing offset means that it was deleted: the topic itself is there, is the one that
// is meant, and may be read. Without a missing offset nothing is asked.
func (o observer) vouch(ctx context.Context, src *kafka.Cluster, recorded []statestore.GroupStatus, seen groupsSeen) {
	missing := map[string]bool{}
	for _, g := range recorded {
		now, ok := seen.byName[g.Group]
		if !ok || now.err != nil {
			continue
		}
		for _, r := range g.Rows {
			if _, there := now.offsets[kafka.TopicPartition{Topic: r.Topic, Partition: r.Partition}]; !there && r.DestinationOffset >= 0 {
				missing[r.Topic] = true
			}
		}
	}
	var ask []string
	ids := map[string]mirror.TopicID{}
	for _, t := range o.view.Topics(o.name) {
		if missing[t.Name] && t.Wish == mirror.Mirroring {
			ask, ids[t.Name] = append(ask, t.Name), t.SourceID
		}
	}
	if len(ask) == 0 {
		return
	}
	meta, err := src.Metadata(ctx, ask...)
	if err != nil {
		return
	}
	topics := catalogOf(meta)
	nameless(topics, meta.ClusterID)
	for name, info := range topics {
		seen.vouched[name] = info.err == nil && info.id == ids[name]
	}
}
