package statestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

const (
	followWait     = 2 * time.Second  // how long a broker holds a Fetch that finds nothing new
	assignmentLife = 30 * time.Second // metadata is asked again at the latest after this
	leaderlessLife = time.Second      // the same while a partition has no leader
	readerBackoff  = 200 * time.Millisecond
)

// Reader reads the internal topics into a View.
type Reader struct {
	client   *kgo.Client
	view     *View
	log      *slog.Logger
	commands bool                                          // __mirror_commands too
	gone     func(ctx context.Context, topic string) error // what to do when an internal topic is missing; nil: wait for it
	here     func()                                        // called while none is missing; may be nil
	next     map[int32]int64                               // by partition of __mirror_commands, kept from one assignment to the next
	topicID  mirror.TopicID                                // of __mirror_commands, as read last
}

// NewReader reads __mirror_state with the cluster's own client. Close the cluster after Run has ended.
func NewReader(cluster *kafka.Cluster, log *slog.Logger) *Reader {
	return &Reader{client: cluster.Client(), view: NewView(0), log: log, next: map[int32]int64{}}
}

// View is what was read so far.
func (r *Reader) View() *View { return r.view }

// Load reads __mirror_state once, to the last stable offsets that it has when reading begins: the command line.
func Load(ctx context.Context, cluster *kafka.Cluster) (*View, error) {
	r := NewReader(cluster, slog.New(slog.DiscardHandler))
	return r.view, r.Load(ctx)
}

// Load reads all shards once, to the last stable offsets that they have when reading begins. It goes on over brokers that
// come and go, but not where the cluster cannot be asked at all or does not allow it. ErrNoState: there is no state topic.
func (r *Reader) Load(ctx context.Context) error {
	for {
		cursors, err := r.assign(ctx)
		if errors.Is(err, ErrNoState) || kafka.Classify(err) == mirror.Unreachable {
			return err
		}
		if err == nil {
			err = r.eachBroker(ctx, cursors, r.drain)
		}
		if kafka.Authorization(err) {
			return err
		}
		if err == nil && slices.ContainsFunc(cursors, func(c *cursor) bool { return c.leader < 0 }) {
			err = fmt.Errorf("some partitions of %s have no leader", StateTopic)
		}
		if err == nil {
			return nil
		}
		if !pause(ctx, readerBackoff) {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// drain reads one broker's cursors to the ends that they had at first.
func (r *Reader) drain(ctx context.Context, cursors []*cursor) error {
	for len(cursors) > 0 {
		err := fetch(ctx, r.client, cursors, 0, func(c *cursor, got fetched) error {
			if c.goal < 0 {
				c.goal = got.last
			}
			r.take(c, got)
			if c.goal >= 0 && c.next >= c.goal {
				r.view.markLoaded(c.partition)
			}
			return nil
		})
		if err != nil && !r.stopped(err) {
			return err
		}
		cursors = slices.DeleteFunc(slices.Clone(cursors), func(c *cursor) bool {
			_, bad := r.view.BadRecord(c.partition)
			return bad || c.goal >= 0 && c.next >= c.goal
		})
	}
	return nil
}

// Run follows the internal topics until the context ends. Errors are healed by asking for metadata and trying again.
func (r *Reader) Run(ctx context.Context) error {
	for told := ""; ctx.Err() == nil; {
		cursors, err := r.assign(ctx)
		switch {
		case r.gone == nil:
		case errors.Is(err, ErrNoState):
			err = r.gone(ctx, StateTopic)
		case err == nil && r.commands && !slices.ContainsFunc(cursors, ofCommands):
			err = r.gone(ctx, CommandsTopic)
		case err == nil && r.here != nil:
			r.here()
		}
		if err == nil {
			err = r.follow(ctx, cursors)
		}
		if err == nil {
			told = ""
			continue
		}
		if text := err.Error(); text != told && ctx.Err() == nil {
			told = text
			r.log.Debug("reading internal topics interrupted", mirror.KeyErr, err)
		}
		pause(ctx, readerBackoff)
	}
	return context.Cause(ctx)
}

// follow polls every leader until its knowledge about leaders is too old.
func (r *Reader) follow(ctx context.Context, cursors []*cursor) error {
	life := assignmentLife
	if r.incomplete(cursors) {
		life = leaderlessLife
	}
	until := time.Now().Add(life)
	if len(cursors) == 0 {
		pause(ctx, life)
		return nil
	}
	err := r.eachBroker(ctx, cursors, func(ctx context.Context, mine []*cursor) error {
		for wait := time.Duration(0); time.Now().Before(until); wait = min(followWait, life) { // first, ends must be known
			err := fetch(ctx, r.client, r.readable(mine), wait, func(c *cursor, got fetched) error {
				r.take(c, got)
				return nil
			})
			if err != nil && !r.stopped(err) {
				return err
			}
		}
		return nil
	})
	for _, c := range cursors {
		if c.topic == CommandsTopic {
			r.next[c.partition] = c.next
		}
	}
	return err
}

// incomplete reports whether metadata must be asked again soon: a partition has no leader, or a topic that was created
// a moment ago does not show yet.
func (r *Reader) incomplete(cursors []*cursor) bool {
	return len(cursors) == 0 || r.commands && !slices.ContainsFunc(cursors, ofCommands) ||
		slices.ContainsFunc(cursors, func(c *cursor) bool { return c.leader < 0 })
}

func ofCommands(c *cursor) bool { return c.topic == CommandsTopic }

// readable leaves out the shards that a bad record has stopped, unless all are.
func (r *Reader) readable(cursors []*cursor) []*cursor {
	good := make([]*cursor, 0, len(cursors))
	for _, c := range cursors {
		if _, bad := r.view.BadRecord(c.partition); c.topic != StateTopic || !bad {
			good = append(good, c)
		}
	}
	if len(good) == 0 {
		return cursors
	}
	return good
}

// take hands what was read to the view.
func (r *Reader) take(c *cursor, got fetched) {
	if got.next < 0 {
		return
	}
	if c.topic == CommandsTopic {
		r.view.beginCommands(c.partition, got.highWatermark)
		r.view.applyCommands(c.partition, got.records)
		return
	}
	r.view.apply(c.partition, got.records, got.next)
	r.complain(c.partition)
	if c.goal < 0 {
		c.goal = got.highWatermark
	}
	if got.last >= 0 && got.next >= got.last {
		r.view.markDecided(c.partition)
	}
	if got.next >= c.goal {
		r.view.markLoaded(c.partition)
	}
}

// complain tells, once each, of a shard that stopped and of records that were skipped.
func (r *Reader) complain(shard int32) {
	if bad, ok := r.view.newlyBad(shard); ok {
		r.log.Error("shard stopped at a record that cannot be read", mirror.KeyShard, shard, mirror.KeyOffset, bad.Offset, mirror.KeyErr, bad.Err,
			"fix", BadRecordFix)
	}
	if n := r.view.newlyUnknown(); n > 0 {
		r.log.Warn("records of unknown types skipped, a newer release wrote them", mirror.KeyShard, shard, mirror.KeyCount, n)
	}
}

// stopped turns a damaged batch of the state topic into a stopped shard.
func (r *Reader) stopped(err error) bool {
	damaged, ok := errors.AsType[*damagedError](err)
	if !ok || damaged.topic != StateTopic {
		return false
	}
	r.view.stop(damaged.partition, BadRecord{damaged.offset, damaged.err})
	r.complain(damaged.partition)
	return true
}

func (r *Reader) eachBroker(ctx context.Context, cursors []*cursor, read func(context.Context, []*cursor) error) error {
	byLeader := map[int32][]*cursor{}
	for _, c := range cursors {
		if c.leader >= 0 {
			byLeader[c.leader] = append(byLeader[c.leader], c)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, mine := range byLeader {
		g.Go(func() error { return read(ctx, mine) })
	}
	return g.Wait()
}

// assign asks for metadata and makes the cursors, going on where reading ended. A state topic with another id than
// before is a new one: it is read from its start, over what the view holds.
func (r *Reader) assign(ctx context.Context) ([]*cursor, error) {
	names := []string{StateTopic}
	if r.commands {
		names = append(names, CommandsTopic)
	}
	topics, err := askMetadata(ctx, r.client, names)
	if err != nil {
		return nil, err
	}
	state, ok := topics[StateTopic]
	if !ok || len(state.Partitions) == 0 {
		return nil, ErrNoState
	}
	r.view.begin(state.TopicID, int32(len(state.Partitions)))
	var cursors []*cursor
	for _, p := range state.Partitions {
		if p.Partition < r.view.Shards() {
			next, _ := r.view.position(p.Partition)
			cursors = append(cursors, &cursor{StateTopic, state.TopicID, p.Partition, p.Leader, next, -1, 0})
		}
	}
	return append(cursors, r.assignCommands(topics[CommandsTopic])...), nil
}

func (r *Reader) assignCommands(t kmsg.MetadataResponseTopic) (cursors []*cursor) {
	if !r.commands || len(t.Partitions) == 0 {
		return nil
	}
	recreated := !r.topicID.IsZero() && r.topicID != t.TopicID
	r.topicID = t.TopicID
	if recreated {
		for partition := range maps.Keys(r.next) {
			r.view.forgetCommands(partition, true)
		}
		r.next = map[int32]int64{}
	}
	for _, p := range t.Partitions {
		next, ok := r.next[p.Partition]
		if !ok {
			next = -1
		}
		cursors = append(cursors, &cursor{CommandsTopic, t.TopicID, p.Partition, p.Leader, next, -1, 0})
	}
	return cursors
}

// askMetadata asks with the given client, which learns the addresses of the brokers by it. Topics that do not exist are
// left out; no topic is ever created by this.
func askMetadata(ctx context.Context, client *kgo.Client, names []string) (map[string]kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("ask for metadata of internal topics: %w", classified(err))
	}
	topics := map[string]kmsg.MetadataResponseTopic{}
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if errors.Is(err, kerr.UnknownTopicOrPartition) || t.Topic == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ask for metadata of topic %s: %w", *t.Topic, classified(err))
		}
		slices.SortFunc(t.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
		topics[*t.Topic] = t
	}
	return topics, nil
}

// pause waits, and reports false when the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
