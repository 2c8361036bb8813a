package mmm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Resolve finds the topics of the source that the items of start select, without those that exclude matches. refused
// holds, by item or topic, why something is not among them; a pattern that matches nothing yet is in neither: topics to
// come may match it. err: the source could not be asked, or is not the mirror's.
func (m *Manager) Resolve(ctx context.Context, mirrorName string, items, exclude []string) (topics []string, refused map[string]error, err error) {
	record, ok := m.deps.View.Mirror(mirrorName)
	if !ok {
		return nil, nil, mirror.Errorf(mirror.Refused, "mirror %s is not defined", mirrorName)
	}
	source, _, err := m.sourceTopics(ctx, record)
	if err != nil {
		return nil, nil, err
	}
	topics, refused = resolveIn(m.deps.View, source, record, items, exclude)
	return topics, refused, nil
}

// sourceTopics lists the topics of a mirror's source. Where another cluster answers, the address is asked anew.
func (m *Manager) sourceTopics(ctx context.Context, record statestore.Mirror) (catalog, *kafka.Cluster, error) {
	for renewed := false; ; renewed = true {
		src, err := m.deps.Source(record.Definition)
		if err != nil {
			return nil, nil, fmt.Errorf("open the source: %w", err)
		}
		topics, err := Sides{src, m.deps.Destination, m.deps.View, m.cfg.CallTimeout}.sourceTopics(ctx, record)
		kind := mirror.KindOf(err)
		if err == nil || renewed || m.deps.Renew == nil || kind != mirror.SourceChanged && kind != mirror.Loop {
			return topics, src, err
		}
		m.deps.Renew(record.Definition)
	}
}

// Sides are what topics are looked up in.
type Sides struct {
	Source, Destination *kafka.Cluster
	View                View
	CallTimeout         time.Duration
}

// ResolveTopics is Resolve for whoever has the clusters of a mirror open.
func ResolveTopics(ctx context.Context, in Sides, record statestore.Mirror, items, exclude []string) (topics []string, refused map[string]error, err error) {
	source, err := in.sourceTopics(ctx, record)
	if err != nil {
		return nil, nil, err
	}
	topics, refused = resolveIn(in.View, source, record, items, exclude)
	return topics, refused, nil
}

func resolveIn(v View, source catalog, record statestore.Mirror, items, exclude []string) (topics []string, refused map[string]error) {
	r := resolution{
		mirror: record, source: source, refused: map[string]error{},
		taken: func(topic string) (string, bool) { return takenBy(v, record.Name, topic) },
	}
	return r.resolve(items, exclude), r.refused
}

func (in Sides) sourceTopics(ctx context.Context, record statestore.Mirror) (catalog, error) {
	meta, err := within(ctx, in.CallTimeout, func(ctx context.Context) (kafka.Metadata, error) { return in.Source.Metadata(ctx) })
	if err != nil {
		return nil, fmt.Errorf("ask the source for its topics: %w", err)
	}
	destinationID, err := within(ctx, in.CallTimeout, in.Destination.ID)
	if err != nil {
		return nil, fmt.Errorf("ask the destination for its cluster id: %w", err)
	}
	if f := judgeCluster(record, meta.ClusterID, destinationID).Finding; f.Message != "" {
		return nil, mirror.Errorf(f.Kind, "%s", f.Message)
	}
	return catalogOf(meta), nil
}

// resolution is the decision about the items of a start.
type resolution struct {
	mirror  statestore.Mirror
	source  catalog
	taken   func(topic string) (by string, ok bool)
	refused map[string]error
}

func (r resolution) resolve(items, exclude []string) (topics []string) {
	excluded, errs := mirror.ParsePatterns(exclude)
	for _, err := range errs {
		r.refused[fmt.Sprint(exclude)] = err
	}
	chosen := map[string]bool{}
	for _, item := range items {
		p, err := mirror.ParsePattern(item)
		switch {
		case err != nil:
			r.refused[item] = err
		case p.Literal():
			if err := r.admits(item); err != nil {
				r.refused[item] = err
			} else if !excluded.Match(item) {
				chosen[item] = true
			}
		default:
			r.matches(p, excluded, chosen)
		}
	}
	return slices.Sorted(maps.Keys(chosen))
}

// matches chooses what a pattern selects. Internal and excluded topics are no part of it; one that another mirror has is
// refused by name.
func (r resolution) matches(p mirror.Pattern, excluded mirror.Patterns, chosen map[string]bool) {
	never, _ := mirror.ParsePatterns(r.mirror.TopicsExclude)
	for name, t := range r.source {
		if !p.Match(name) || excluded.Match(name) || never.Match(name) || internalTopic(name, t) || t.err != nil {
			continue
		}
		if err := r.admits(name); err != nil {
			r.refused[name] = err
			continue
		}
		chosen[name] = true
	}
}

// admits tells why a topic cannot be started.
func (r resolution) admits(name string) error {
	never, _ := mirror.ParsePatterns(r.mirror.TopicsExclude)
	t, ok := r.source[name]
	by, taken := r.taken(name)
	switch {
	case internalTopic(name, t):
		return mirror.Errorf(mirror.Refused, "topic %s is internal and never mirrored", name)
	case !ok:
		return mirror.Errorf(mirror.Refused, "the source has no topic %s", name)
	case t.err != nil:
		return fmt.Errorf("source topic %s: %w", name, t.err)
	case never.Match(name):
		return mirror.Errorf(mirror.Refused, "topic %s is excluded by topics_exclude", name)
	case taken:
		return mirror.Errorf(mirror.Refused, "topic %s is in mirror %s", name, by)
	}
	return nil
}
