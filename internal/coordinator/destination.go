package coordinator

import (
	"context"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

const lookPause = 500 * time.Millisecond

// awaitDestination waits until the state topic is read and this group may use it.
func (c *Coordinator) awaitDestination(ctx context.Context) error {
	if !c.awaitIdentity(ctx) {
		return nil
	}
	for c.clusterID == "" {
		id, err := c.deps.Cluster.ID(ctx)
		if err == nil {
			c.clusterID = id
			break
		}
		if !sleep(ctx, lookPause) {
			return nil
		}
	}
	return c.awaitGroup(ctx)
}

// awaitIdentity waits until shard 0, which tells whose destination this is, was read: to its end, or as far as it is decided
// if that says that it is ours. What an instance of ours has left open when it was killed is ended by the next owner, who
// has to be a member first. False: the context ended before.
func (c *Coordinator) awaitIdentity(ctx context.Context) bool {
	for {
		changed := c.view.Changed()
		_, bad := c.view.BadRecord(0)
		decided := c.view.Decided(0)
		own, known := c.view.Identity()
		if bad || c.view.Loaded(0) || decided && known && own.GroupID == c.deps.Config.GroupID {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// awaitGroup makes sure that the destination is not shared by two groups, which would mirror everything twice. The group
// that started first is recorded, and that binds as long as it lives: while it has a member. A group whose instances are
// all gone leaves the destination, with its mirrors, to the next one. Members that were killed are members until their
// session is over, so they are waited for.
func (c *Coordinator) awaitGroup(ctx context.Context) error {
	patience := time.Now().Add(2*c.deps.Config.SessionTimeout + 5*time.Second)
	for told := false; ; told = true {
		own, ok := c.view.Identity()
		if !ok || own.GroupID == c.deps.Config.GroupID {
			return nil
		}
		alive, err := c.groupLives(ctx, own.GroupID)
		switch {
		case err == nil && !alive:
			c.log.Warn("destination taken over from a group without members", mirror.KeyGroup, own.GroupID)
			return nil
		case err == nil && time.Now().After(patience):
			return otherGroup(own.GroupID, c.deps.Config.GroupID)
		case !told:
			attrs := []any{mirror.KeyGroup, own.GroupID}
			if err != nil {
				attrs = append(attrs, mirror.KeyErr, err)
			}
			c.log.Warn("destination belongs to another group, waiting for that to end", attrs...)
		}
		if !sleep(ctx, lookPause) {
			return nil
		}
	}
}

func (c *Coordinator) groupLives(ctx context.Context, group string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.deps.Config.SessionTimeout)
	defer cancel()
	d := c.deps.Cluster.DescribeGroups(ctx, []kafka.Group{{ID: group, Type: "classic"}})[group]
	if d.Err != nil {
		return false, d.Err
	}
	return len(d.Members) > 0, nil
}

func otherGroup(theirs, ours string) error {
	return mirror.Errorf(mirror.Refused, "the destination belongs to group %q, which has living members; this instance is configured with group_id %q", theirs, ours).
		WithHint("one destination has one group_id: use that one, or stop those instances")
}

// identityRecords record whose destination this is, in shard 0.
func (r *runner) identityRecords() []statestore.Record {
	own := statestore.ClusterIdentity{ClusterID: r.clusterID, GroupID: r.deps.Config.GroupID}
	if now, ok := r.view.Identity(); ok && now == own {
		return nil
	}
	return []statestore.Record{own}
}

// checkIdentity ends this instance when another group has taken the destination after this one: of two that began at the
// same moment, the one that was recorded last stays.
func (r *runner) checkIdentity() {
	own, ok := r.view.Identity()
	switch {
	case !ok:
	case own.GroupID == r.deps.Config.GroupID:
		r.bound = true
	case r.bound:
		r.ended = otherGroup(own.GroupID, r.deps.Config.GroupID)
	}
}

// sleep waits; false: the context ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
