package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// assignments is who gets to know which shards the group gives to this instance. Calls come one after another.
type assignments interface {
	assigned(shards []int32)
	revoked(shards []int32) // returns once they are released, bounded
	lost(shards []int32)
	confirmed() // the lease was extended; may come at the same time as the others
}

// group is the membership in the consumer group on the state topic. It consumes nothing: being assigned a partition means
// being the coordinator of that shard. Balancing is cooperative, so a member that comes or goes stops only what moves.
type group struct {
	cfg    Config
	client *kgo.Client
	lease  *lease
	member func(id string, generation int32, instanceID *string) // told at each change (protocol R15)
	told   func(error)                                           // told why the group does not take this instance; nil: it does
	to     assignments

	mu         sync.Mutex // guards what follows, which callbacks and heartbeats may change at the same time
	id         string     // as last told
	generation int32
}

// open makes the client, which joins at once and again after each loss.
func (g *group) open(cluster *kafka.Cluster) (err error) {
	opts := append(cluster.Opts(),
		kgo.WithHooks(groupErrors(g.refused)),
		kgo.ConsumerGroup(g.cfg.GroupID),
		kgo.ConsumeTopics(statestore.StateTopic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(g.cfg.SessionTimeout),
		kgo.RebalanceTimeout(g.cfg.SessionTimeout+releaseTime),
		kgo.HeartbeatInterval(g.cfg.heartbeat()),
		kgo.RequestTimeoutOverhead(g.cfg.SessionTimeout/4), // a silent coordinator is noticed while the session lasts
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, c *kgo.Client, m map[string][]int32) {
			g.refresh(c)
			g.to.assigned(m[statestore.StateTopic])
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, c *kgo.Client, m map[string][]int32) {
			g.refresh(c)
			g.to.revoked(m[statestore.StateTopic])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			g.lease.end()
			g.to.lost(m[statestore.StateTopic])
		}))
	if g.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(g.cfg.InstanceID))
	}
	if g.client, err = kgo.NewClient(opts...); err != nil {
		return fmt.Errorf("join group %s: %w", g.cfg.GroupID, err)
	}
	g.client.PauseFetchTopics(statestore.StateTopic)
	return nil
}

// groupErrors is called with what ends a session or keeps one from beginning.
type groupErrors func(error)

// OnGroupManageError implements kgo.HookGroupManageError.
func (f groupErrors) OnGroupManageError(err error) { f(err) }

// refused passes on what only an operator can change. Everything else is part of a group's life.
func (g *group) refused(err error) {
	if kafka.Classify(err) == mirror.Refused {
		g.told(fmt.Errorf("join group %s: %w", g.cfg.GroupID, kafka.ForWantOf("READ on group "+g.cfg.GroupID+" at the destination", err)))
	}
}

// refresh tells the state writer who this member is, if that changed.
func (g *group) refresh(client *kgo.Client) (id string, generation int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, generation = client.GroupMetadata()
	if id == g.id && generation == g.generation {
		return id, generation
	}
	g.id, g.generation = id, generation
	var instance *string
	if g.cfg.InstanceID != "" {
		instance = &g.cfg.InstanceID
	}
	g.member(id, generation, instance)
	return id, generation
}

// run sends heartbeats of its own beside those of the client, for two reasons: their answers are seen, so that only a
// confirmed one extends the lease, and a generation that changed without a callback is told to the state writer.
func (g *group) run(ctx context.Context) {
	ticker := time.NewTicker(g.cfg.heartbeat())
	defer ticker.Stop()
	for {
		g.beat(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (g *group) beat(ctx context.Context) {
	id, generation := g.refresh(g.client)
	if id == "" || generation < 0 {
		return
	}
	began := g.lease.now()
	ctx, cancel := context.WithTimeout(ctx, g.cfg.SessionTimeout/3)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = g.cfg.GroupID, id, generation
	if g.cfg.InstanceID != "" {
		req.InstanceID = &g.cfg.InstanceID
	}
	resp, err := req.RequestWith(ctx, g.client)
	if err != nil {
		return
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case err == nil, errors.Is(err, kerr.RebalanceInProgress): // while a rebalance is prepared the session is renewed too
		g.lease.renew(began, g.cfg.leaseTime())
		g.told(nil)
		g.to.confirmed()
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID):
		if now, _ := g.client.GroupMetadata(); now == id {
			g.lease.end()
		}
	default:
		g.refused(err)
	}
}

// close leaves the group, so that the next owner takes over at once; a static member stays. The client waits for a join
// that is under way, which a silent broker may hold up: ctx bounds the wait, not the goroutine, which ends with the join.
func (g *group) close(ctx context.Context) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = g.client.LeaveGroupContext(ctx) // whatever it says: the session ends by itself
		g.client.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}
