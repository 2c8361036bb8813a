package mmm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// topicSet holds the topics that are being recreated. Refreshes leave them alone.
type topicSet struct {
	mu     sync.Mutex // guards topics
	topics map[string]bool
}

func (s *topicSet) list() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.topics)
}

func (s *topicSet) set(topic string, in bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics == nil {
		s.topics = map[string]bool{}
	}
	if delete(s.topics, topic); in {
		s.topics[topic] = true
	}
}

// replaceTime bounds the wait for a deleted topic to be gone and its successor to be there.
const replaceTime = 30 * time.Second

// Reseed recreates a destination topic that cannot become a copy any more, and makes the mirror begin anew with the
// source topic that is there now. Before anything is deleted, what only the destination has is exported; path is the
// folder, empty if there was nothing. Called again after a crash it goes on where it was. The caller re-arms the
// partitions; group offsets follow with the next cycle. Right before anything is deleted, commit is asked, and what the
// decision was made from is looked at again: the topic may be the only copy by then.
func (m *Manager) Reseed(ctx context.Context, mirrorName, topic string, commit func(context.Context) error) (path string, err error) {
	record, ok := m.deps.View.Mirror(mirrorName)
	t, known := m.deps.View.Topic(mirrorName, topic)
	if !ok || !known {
		return "", mirror.Errorf(mirror.Refused, "mirror %s has no topic %s", mirrorName, topic)
	}
	if r := m.of(mirrorName); r != nil {
		r.loop.recreating.set(topic, true)
		defer r.loop.recreating.set(topic, false)
	}
	ctx = kafka.WithLease(ctx, m.deps.Lease)
	s := reseed{m: m, mirror: record, topic: t, commit: commit}
	if err := s.look(ctx); err != nil {
		return "", err
	}
	if s.there && sameTopic(s.old.ID, t.DestinationID) {
		if err := m.keepOut(ctx, mirrorName, topic); err != nil {
			return "", err
		}
	}
	if path, err = s.replace(ctx); err != nil {
		s.release(ctx)
		return path, err
	}
	after := t
	after.SourceID, after.DestinationID, after.Partitions = s.source.id, s.destinationID, s.source.partitions
	after.Finding, after.Message, after.Promoted, after.Unready = statestore.Finding{}, "", false, true
	if err := m.deps.Put(ctx, mirrorName, after); err != nil {
		return path, fmt.Errorf("record the recreated topic %s: %w", topic, err)
	}
	m.deps.Log.Info("topic recreated", mirror.KeyMirror, mirrorName, mirror.KeyTopic, topic, "export", path)
	m.deps.event(mirrorName, topic, "topic recreated", path)
	return path, nil
}

// keepOut waits until the loop has guarded a topic that is about to be recreated: one that was turned away has its writers
// again, and what they would write after the export were lost. Where guards cannot be had, the export looks out for them alone.
func (m *Manager) keepOut(ctx context.Context, mirrorName, topic string) error {
	r := m.of(mirrorName)
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, replaceTime)
	defer cancel()
	for {
		if !r.loop.guardWanted() || r.loop.board.read().Unguarded != "" {
			return nil
		}
		rules, err := m.deps.Destination.DescribeACLs(ctx)
		if kafka.SecurityDisabled(err) || slices.Contains(rules, guardOf(topic)) {
			return nil
		}
		m.Wake(mirrorName)
		select {
		case <-ctx.Done():
			return errors.Join(mirror.Errorf(mirror.Retriable, "topic %s could not be guarded, so it is not recreated", topic), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// reseed is one topic being recreated.
type reseed struct {
	m      *Manager
	mirror statestore.Mirror
	topic  statestore.Topic
	commit func(context.Context) error

	source        topicInfo
	settings      map[string]string // of the new topic
	owned         statestore.TopicSettings
	old           kafka.Topic // at the destination; zero: not there
	there         bool
	moved         bool           // some partition was still mirrored when it was halted
	destinationID mirror.TopicID // of the new topic
}

// look reads both sides. The source must have the topic: without it there is nothing to begin anew with.
func (s *reseed) look(ctx context.Context) error {
	topics, src, err := s.m.sourceTopics(ctx, s.mirror)
	if err != nil {
		return err
	}
	info, ok := topics[s.topic.Name]
	if !ok || info.err != nil {
		return errors.Join(mirror.Errorf(mirror.SourceGone, "the source has no topic %s to copy", s.topic.Name), info.err)
	}
	if info.id.IsZero() {
		info.id = namedID(s.mirror.LearntClusterID, s.topic.Name)
	}
	s.source = info
	meta, err := within(ctx, s.m.cfg.CallTimeout, func(ctx context.Context) (kafka.Metadata, error) {
		return s.m.deps.Destination.Metadata(ctx, s.topic.Name)
	})
	if err != nil {
		return fmt.Errorf("look at the destination topic: %w", err)
	}
	s.old = meta.Topics[s.topic.Name]
	if s.there = !kafka.UnknownTopic(s.old.Err); s.there && s.old.Err != nil {
		return fmt.Errorf("destination topic %s: %w", s.topic.Name, s.old.Err)
	}
	return s.plan(ctx, src)
}

// plan works out the settings of the new topic: those of the old one, and what a new mirror topic would get.
func (s *reseed) plan(ctx context.Context, src *kafka.Cluster) error {
	o := observer{view: s.m.deps.View, name: s.mirror.Name, timeout: s.m.cfg.CallTimeout}
	name := []string{s.topic.Name}
	source, errs := o.settings(ctx, src, name)
	if err := errs[s.topic.Name]; err != nil {
		return fmt.Errorf("settings of the source topic: %w", err)
	}
	s.settings = map[string]string{}
	if s.there {
		destination, errs := o.settings(ctx, s.m.deps.Destination, name)
		if err := errs[s.topic.Name]; err != nil {
			return fmt.Errorf("settings of the destination topic: %w", err)
		}
		maps.Copy(s.settings, destination[s.topic.Name].explicit)
	}
	known, _ := s.m.deps.Destination.KnownTopicConfigs(ctx, statestore.StateTopic)
	replicas := int(max(0, s.mirror.ReplicationFactor))
	if s.there && len(s.old.Partitions) > 0 {
		replicas = len(s.old.Partitions[0].Replicas)
	}
	plan := planSettings(settingsInput{source: source[s.topic.Name], replicas: replicas, exclude: s.mirror.TopicPropertiesExclude, known: known})
	maps.Copy(s.settings, plan.set)
	s.owned = statestore.TopicSettings{Mirror: s.mirror.Name, Topic: s.topic.Name, Owned: plan.owned, Source: plan.source}
	return nil
}

// replace exports, deletes and creates. A topic under another id than the recorded one is either what an earlier attempt
// created, then it is empty and taken, or somebody else's, then it is not touched.
func (s *reseed) replace(ctx context.Context) (path string, err error) {
	if s.there && s.old.ID != s.topic.DestinationID && !s.topic.DestinationID.IsZero() {
		return s.adopt(ctx)
	}
	if path, err = s.clear(ctx); err != nil {
		return path, err
	}
	if path == "" {
		path = s.kept()
	}
	if err := s.m.deps.Put(ctx, s.mirror.Name, s.owned); err != nil { // what mirrord sets is recorded before it is set
		return path, fmt.Errorf("record the settings of topic %s: %w", s.topic.Name, err)
	}
	return path, s.create(ctx)
}

// clear exports and deletes what is there. Once committed a stop waits for the end, so only the destination is asked then.
func (s *reseed) clear(ctx context.Context) (path string, err error) {
	if !s.there {
		return "", s.commit(ctx)
	}
	if err := s.halt(ctx); err != nil {
		return "", err
	}
	before, err := s.rested(ctx)
	if err != nil {
		return "", err
	}
	if path, err = s.export(ctx); err != nil {
		return path, err
	}
	if err := s.sourceStays(ctx); err != nil {
		return path, err
	}
	if err := s.commit(ctx); err != nil {
		return path, err
	}
	after, err := s.ends(ctx)
	if err != nil {
		return path, err
	}
	if !maps.Equal(before, after) {
		return path, s.written()
	}
	if err := s.m.deps.Destination.DeleteTopic(ctx, s.topic.Name, s.old.ID); err != nil && !kafka.UnknownTopic(err) {
		return path, err
	}
	return path, nil
}

// sourceStays finds that there is still something to copy from: the export may have taken hours.
func (s *reseed) sourceStays(ctx context.Context) error {
	topics, _, err := s.m.sourceTopics(ctx, s.mirror)
	if err != nil {
		return fmt.Errorf("topic %s is kept, for the source does not answer any more: %w", s.topic.Name, err)
	}
	info, ok := topics[s.topic.Name]
	if ok && info.id.IsZero() {
		info.id = s.source.id // an old broker tells none
	}
	if !ok || info.err != nil || info.id != s.source.id || info.partitions != s.source.partitions {
		return mirror.Errorf(mirror.SourceGone, "source topic %s has changed while the destination's was exported", s.topic.Name).
			WithHint("recover again")
	}
	return nil
}

// ends are the destination topic's log end offsets by partition.
func (s *reseed) ends(ctx context.Context) (map[int32]int64, error) {
	var tps []kafka.TP
	for _, p := range s.old.Partitions {
		tps = append(tps, kafka.TP{Topic: s.topic.Name, Partition: p.Index, LeaderEpoch: -1})
	}
	ends := map[int32]int64{}
	for tp, end := range s.m.deps.Destination.LogEnds(ctx, tps) {
		if end.Err != nil {
			return nil, end.Err
		}
		ends[tp.Partition] = end.Offset
	}
	return ends, nil
}

func (s *reseed) adopt(ctx context.Context) (string, error) {
	ends, err := s.ends(ctx)
	if err != nil {
		return "", err
	}
	for partition, end := range ends {
		if end > 0 {
			return "", mirror.Errorf(mirror.DestinationGone, "somebody has created topic %s anew and written to it (partition %d ends at %d)",
				s.topic.Name, partition, end).WithHint("delete it, then recover again")
		}
	}
	if int32(len(s.old.Partitions)) != s.source.partitions {
		return "", mirror.Errorf(mirror.DestinationGone, "somebody has created topic %s anew with %s, the source has %d",
			s.topic.Name, mirror.Count(len(s.old.Partitions), "partition"), s.source.partitions).WithHint("delete it, then recover again")
	}
	s.destinationID = s.old.ID
	return s.kept(), nil
}

// create waits until the old topic has gone and the new one is there.
func (s *reseed) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, replaceTime, errors.New("the deleted topic does not go away"))
	defer cancel()
	spec := kafka.TopicSpec{
		Name: s.topic.Name, Partitions: s.source.partitions, ReplicationFactor: s.mirror.ReplicationFactor,
		Configs: s.settings,
	}
	if s.there && len(s.old.Partitions) > 0 {
		spec.ReplicationFactor = int16(len(s.old.Partitions[0].Replicas))
	}
	for {
		id, err := s.m.deps.Destination.CreateTopic(ctx, spec)
		if err == nil {
			s.destinationID = id
			return nil
		}
		if !kafka.TopicExists(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *reseed) folder() string {
	return filepath.Join(s.m.cfg.DataDir, "reseed", s.mirror.Name, s.topic.Name+"-"+s.topic.DestinationID.String())
}

// kept is the folder of exports if an attempt has left any; empty: none.
func (s *reseed) kept() string {
	if found, err := filepath.Glob(filepath.Join(s.folder(), "partition-*")); err != nil || len(found) == 0 {
		return ""
	}
	return s.folder()
}

// export writes what only the destination has, a file per partition. What an attempt before has written is written
// again, since the topic may have grown.
func (s *reseed) export(ctx context.Context) (path string, err error) {
	folder := s.folder()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("export before recreating: %w", err)
	}
	target := s.topic
	target.SourceID = s.source.id
	for _, p := range s.old.Partitions {
		name := filepath.Join(folder, fmt.Sprintf("partition-%d.jsonl", p.Index))
		if err := s.exportPartition(ctx, target, p.Index, name); err != nil {
			return folder, fmt.Errorf("export partition %d before recreating: %w", p.Index, err)
		}
	}
	if path = s.kept(); path == "" {
		_ = os.Remove(folder) // an empty folder is not worth an error
	}
	return path, nil
}

func (s *reseed) exportPartition(ctx context.Context, t statestore.Topic, partition int32, name string) error {
	if s.m.deps.Tail == nil {
		return mirror.Errorf(mirror.Refused, "this instance cannot export")
	}
	f, err := os.CreateTemp(filepath.Dir(name), "unfinished-*")
	if err != nil {
		return err
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }() // of a finished export neither is left to do
	w := bufio.NewWriter(f)
	n, err := s.m.deps.Tail(ctx, s.mirror.Name, t, partition, w)
	if err == nil {
		err = errors.Join(w.Flush(), f.Sync(), f.Close())
	}
	if err != nil || n == 0 {
		return err
	}
	return os.Rename(f.Name(), name)
}
