package statestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

const (
	ensureBackoff = time.Second
	// openTransactionPatience is how long a loader waits for an open transaction to end by itself, which takes some ten
	// milliseconds while its owner lives.
	openTransactionPatience = 500 * time.Millisecond
)

// Deps is what a Store needs besides its Config.
type Deps struct {
	Cluster *kafka.Cluster
	// Instance tells this process from all others of the group; it becomes part of the transactional id.
	Instance   string
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Store reads and writes the internal topics of a destination. It is safe for concurrent use.
type Store struct {
	cfg     Config
	deps    Deps
	view    *View
	metrics *metrics
	appends chan *appending
	ended   chan struct{} // closed when Run ends
	// patience is how long a refused generation may be the one before a rebalance.
	patience time.Duration
	missed   mirror.TopicID // the state topic that was found missing last; the reader's own

	mu      sync.Mutex // guards what follows
	member  member
	changed chan struct{} // closed and replaced when member changes
	owned   map[int32]bool
	problem error // why the internal topics cannot be served now
}

// member is this instance's standing in the group. Transactions carry it (protocol R15).
type member struct {
	id         string
	generation int32
	instanceID *string
}

// Open makes a Store without touching the network. Nothing is read or written before Run.
func Open(cfg Config, deps Deps) *Store {
	s := &Store{
		cfg: cfg, deps: deps, view: NewView(0), appends: make(chan *appending), ended: make(chan struct{}),
		changed: make(chan struct{}), owned: map[int32]bool{}, patience: generationPatience,
	}
	s.metrics = newMetrics(deps.Registerer, s.view)
	return s
}

// View is the content of the state topic as this instance knows it. Its Shards are 0 until Run has found the topic.
func (s *Store) View() *View { return s.view }

// TransactionalID names this instance's state writer; a ShardClaim carries it, so that a successor can end what it left
// open.
func (s *Store) TransactionalID() string { return s.cfg.GroupID + "-" + s.deps.Instance }

// SetMember tells the standing in the group that appends carry from now on. Shards that were taken away must be
// disowned before.
func (s *Store) SetMember(memberID string, generation int32, instanceID *string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.member
	s.member = member{memberID, generation, instanceID}
	if before.id == memberID && before.generation == generation {
		return
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// Disown forgets the claims of shards that were taken away: appends to them are refused from now on.
func (s *Store) Disown(shards ...int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range shards {
		delete(s.owned, n)
	}
}

func (s *Store) standing() (member, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.member, s.changed
}

// Problem is why the internal topics cannot be served now; nil: they can.
func (s *Store) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

func (s *Store) setProblem(err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = (err == nil) != (s.problem == nil) || err != nil && err.Error() != s.problem.Error()
	s.problem = err
	return news
}

// Run creates the internal topics where needed, follows them and writes appends until the context ends. What fails is
// tried again: a destination that is away ends nothing.
func (s *Store) Run(ctx context.Context) error {
	defer close(s.ended)
	client, err := kgo.NewClient(s.deps.Cluster.Opts()...)
	if err != nil {
		return fmt.Errorf("open state reader: %w", err)
	}
	defer client.Close()
	if !s.ensure(ctx) {
		return context.Cause(ctx)
	}
	r := &Reader{client: client, view: s.view, log: s.deps.Log, commands: true, gone: s.recreate, here: func() { s.setProblem(nil) }, next: map[int32]int64{}}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Run(ctx) })
	g.Go(func() error { return newWriter(s).run(ctx) })
	g.Go(func() error { return s.restore(ctx) })
	return g.Wait()
}

// ensure tries until the internal topics are there; false: the context ended before.
func (s *Store) ensure(ctx context.Context) bool {
	for {
		_, err := ensureTopics(ctx, s.deps.Cluster, s.cfg, s.deps.Log, s.view.uncommanded)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			s.setProblem(nil)
			return true
		}
		s.complain(ctx, err)
		if !pause(ctx, ensureBackoff) {
			return false
		}
	}
}

// complain says what keeps the internal topics from being served, once per reason.
func (s *Store) complain(ctx context.Context, err error) {
	level := slog.LevelWarn
	if kafka.Classify(err) == mirror.Refused {
		level = slog.LevelError
	}
	if s.setProblem(err) {
		s.deps.Log.Log(ctx, level, "internal topics could not be prepared", mirror.KeyErr, err)
	}
}

// recreate puts a deleted internal topic back, with as many shards as the view has, since records are routed by that
// number. The shards that this instance owns are written again at once; others do the same with theirs.
func (s *Store) recreate(ctx context.Context, topic string) error {
	cfg := s.cfg
	if n := s.view.Shards(); n > 0 {
		cfg.NumPartitions = n
	}
	_, err := EnsureTopics(ctx, s.deps.Cluster, cfg, s.deps.Log)
	if s.setProblem(err); err != nil {
		return err
	}
	if missed := s.view.id(); topic == StateTopic && missed != s.missed { // metadata takes a moment to show what was created
		s.missed = missed
		s.deps.Log.Warn("state topic was missing, created it again", mirror.KeyTopic, topic)
	}
	return errCreated
}

// errCreated makes the reader look again.
var errCreated = errors.New("an internal topic was created just now")

// restore writes the shards that this instance owns again whenever the state topic was replaced; everything else would
// be lost if the instance ended before it has something to write.
func (s *Store) restore(ctx context.Context) error {
	var last mirror.TopicID
	for {
		changed := s.view.Changed()
		if id := s.view.id(); id != last {
			for _, shard := range s.claimed() {
				if err := s.Append(ctx, shard); err != nil && ctx.Err() == nil {
					s.deps.Log.Warn("shard could not be written to the new state topic", mirror.KeyShard, shard, mirror.KeyErr, err)
				}
			}
			last = id
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

func (s *Store) claimed() []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.owned))
}

// WaitLoaded waits until the view holds everything of a shard up to the high watermark that it has now. A transaction
// that a dead predecessor left open would hold that back: it is ended, by taking over its transactional id.
func (s *Store) WaitLoaded(ctx context.Context, shard int32) error {
	if err := s.waitShards(ctx, shard); err != nil {
		return err
	}
	for round := 0; ; round++ {
		end, err := s.highWatermark(ctx, shard)
		if err != nil {
			return err
		}
		patience, cancel := context.WithTimeout(ctx, openTransactionPatience<<min(round, 4))
		err = s.view.waitRead(patience, shard, end)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		err = errors.Join(s.endHanging(ctx, shard), s.endOpenTransaction(ctx, shard, round > 0))
		if err == nil {
			err = errUnreadable
		}
		level := slog.LevelDebug
		if round == loadingTold {
			level = slog.LevelWarn
		}
		s.deps.Log.Log(ctx, level, "shard is not loaded yet", mirror.KeyShard, shard, mirror.KeyOffset, end, mirror.KeyErr, err)
	}
}

var errUnreadable = errors.New("its records up to the high watermark are not readable: a transaction of an earlier owner is open, or the partition has no leader")

// loadingTold is the round of waiting after which the operator is told.
const loadingTold = 5

// highWatermark asks until it is told: leaders move, and a new topic is not known everywhere at once.
func (s *Store) highWatermark(ctx context.Context, shard int32) (int64, error) {
	for {
		end, err := listOffset(ctx, s.deps.Cluster.Client(), StateTopic, shard, -1)
		if err == nil {
			return end, nil
		}
		if !pause(ctx, readerBackoff) {
			return 0, fmt.Errorf("load shard %d: %w", shard, err)
		}
	}
}

func (s *Store) waitShards(ctx context.Context, shard int32) error {
	for {
		changed := s.view.Changed()
		if s.view.Shards() > shard {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// endOpenTransaction fences the writer that claimed the shard last. If it lives and owns other shards, it begins anew
// by itself. That holds for our own id too: a static instance that was killed left its transaction under it, and nothing
// is appended, so nothing ends it, before the shard is loaded.
func (s *Store) endOpenTransaction(ctx context.Context, shard int32, own bool) error {
	claim, ok := s.view.Claim(shard)
	if !ok || claim.TransactionalID == "" || claim.TransactionalID == s.TransactionalID() && !own {
		return nil
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = kmsg.StringPtr(claim.TransactionalID)
	req.TransactionTimeoutMillis = int32(transactionTimeout.Milliseconds())
	return retryCode(ctx, func() (int16, error) {
		resp, err := req.RequestWith(ctx, s.deps.Cluster.Client())
		if err != nil {
			return 0, err
		}
		return resp.ErrorCode, nil
	})
}

// waitRead waits until a shard was read up to an offset.
func (v *View) waitRead(ctx context.Context, shard int32, to int64) error {
	err := v.wait(ctx, shard, func() bool {
		next, _ := v.position(shard)
		return next >= to
	})
	if err != nil {
		return fmt.Errorf("read shard %d to offset %d: %w", shard, to, err)
	}
	return nil
}

// waitLoaded waits until a shard of the present topic was read to its end once. Only then it is known whether the topic
// holds anything (see lost).
func (v *View) waitLoaded(ctx context.Context, shard int32) error {
	return v.wait(ctx, shard, func() bool { return v.Loaded(shard) })
}

// wait waits for something about a shard to become true, unless a record that cannot be read has stopped it.
func (v *View) wait(ctx context.Context, shard int32, done func() bool) error {
	for {
		changed := v.Changed()
		if bad, ok := v.BadRecord(shard); ok {
			return badShard(shard, bad)
		}
		if done() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

func badShard(shard int32, bad BadRecord) error {
	return mirror.Errorf(mirror.Refused, "shard %d %s", shard, bad).WithHint(BadRecordFix)
}
