package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Committed offsets follow the source (SPEC §9).
func TestGroupsFollowTheSource(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	s := p.Mirror(".*")
	s.MirrorExtra = []string{"groups_exclude: [never-.*]", `topics_exclude: ["__.*", unmirrored]`}
	m := NewDaemon(t, s)
	m.Start()
	for name, rule := range map[string]func(*testing.T, Pair, *Daemon){
		"moves, resets, metadata": groupMoves, "excluded": groupExcluded, "clamped": groupClamped, "deleted offsets": groupDeleted,
		"deleted group": groupGone, "active on the destination": groupActive, "subscribed to another topic": groupElsewhere,
		"ahead on the destination": groupAhead, "stopped": groupStopped, "last commit": groupLastCommit, "paused": groupPaused,
		"classic and KIP-848 members": groupMembers, "share": groupShare, "another type here": groupOfAnotherType,
		"not mirrored topics": groupSpans, "ids that are hardly names": groupOddIDs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule(t, p, m.In(t))
		})
	}
}

// filled makes a topic with records in partition 0 and waits for its copy.
func filled(t *testing.T, p Pair, topic string, records int) {
	t.Helper()
	p.S.Topic(t, topic, 1)
	p.S.Send(t, nil, Numbered(topic, 0, 0, records)...)
	AwaitLevel(t, p.S, p.D, soon, topic)
}

// groupOddIDs: older clients commit without an id, and an id may hold anything.
func groupOddIDs(t *testing.T, p Pair, _ *Daemon) {
	const topic = "odd-ids"
	filled(t, p, topic, 10)
	for _, group := range []string{"", "g of\ntwo lines"} {
		p.S.Commit(t, group, topic, 0, 5)
		Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 5) })
	}
}

func groupMoves(t *testing.T, p Pair, m *Daemon) {
	const topic, group = "moves", "g-moves"
	filled(t, p, topic, 100)
	at := func(offset int64) {
		t.Helper()
		p.S.Commit(t, group, topic, 0, offset)
		Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, offset) })
	}
	at(40)
	at(70)
	at(10) // the source group was reset backwards
	at(100)
	p.S.CommitAs(t, group, kadm.Offset{Topic: topic, At: 50, LeaderEpoch: 0, Metadata: "m1"})
	Eventually(t, soon, func() error {
		got, err := p.D.Committed(group, topic, 0)
		if err == nil && (got.At != 50 || got.Metadata != "m1" || got.LeaderEpoch != -1) {
			err = fmt.Errorf("committed %+v, want 50 with metadata m1 and no leader epoch", got)
		}
		return err
	})
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "synced", "") })
}

func groupExcluded(t *testing.T, p Pair, m *Daemon) {
	const topic = "excluded"
	filled(t, p, topic, 10)
	p.S.Commit(t, "never-this", topic, 0, 5)
	p.S.Commit(t, "but-this", topic, 0, 5)
	Eventually(t, soon, func() error { return p.D.wantCommitted("but-this", topic, 0, 5) })
	must(t, p.D.wantCommitted("never-this", topic, 0, -1))
}

// What the destination's log does not have is never committed: not beyond its end, not before its start.
func groupClamped(t *testing.T, p Pair, m *Daemon) {
	const topic, group, low = "clamped", "g-clamped", "g-clamped-low"
	filled(t, p, topic, 100)
	m.Do("pause", "--mirror", "east", "--topics", topic)
	_, err := p.S.Admin().DeleteRecords(context.Background(), offsetsOf(topic, 60))
	must(t, err)
	p.S.CommitAs(t, low, kadm.Offset{Topic: topic, At: 20, LeaderEpoch: -1, Metadata: "text"})
	m.Do("resume", "--mirror", "east", "--topics", topic)
	AwaitLevel(t, p.S, p.D, soon, topic)
	Eventually(t, soon, func() error { return p.D.wantCommitted(low, topic, 0, 60) })
	Eventually(t, soon, func() error { return m.wantGroup(low, topic, "clamped", "60") })
	if got, err := p.D.Committed(low, topic, 0); err != nil || got.Metadata != "" {
		t.Errorf("a clamped offset kept its metadata: %+v (%v)", got, err)
	}
	p.S.Commit(t, group, topic, 0, 1000) // nobody has read so far: what is beyond the end comes later
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 100) })
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "clamped", "") })
	p.S.Send(t, nil, Numbered(topic, 0, 100, 1000)...)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 1000) })
}

func offsetsOf(topic string, at int64) kadm.Offsets {
	var all kadm.Offsets
	all.Add(kadm.Offset{Topic: topic, At: at})
	return all
}

// Offsets that are deleted at the source are deleted here if mirrord had committed them, and only then.
func groupDeleted(t *testing.T, p Pair, m *Daemon) {
	const topic, other, group = "deleted", "deleted-other", "g-deleted"
	filled(t, p, topic, 10)
	filled(t, p, other, 10)
	p.S.Commit(t, group, topic, 0, 5)
	p.S.Commit(t, group, other, 0, 6)
	Eventually(t, soon, func() error {
		return errors.Join(p.D.wantCommitted(group, topic, 0, 5), p.D.wantCommitted(group, other, 0, 6))
	})
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "synced", "") })
	var gone kadm.TopicsSet
	gone.Add(topic, 0)
	_, err := p.S.Admin().DeleteOffsets(context.Background(), group, gone)
	must(t, err)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, -1) })
	must(t, p.D.wantCommitted(group, other, 0, 6))
}

// A group that is deleted at the source keeps what its consumers committed here by themselves.
func groupGone(t *testing.T, p Pair, m *Daemon) {
	const topic, group, own = "gone", "g-gone", "g-gone-own"
	filled(t, p, topic, 10)
	for _, g := range []string{group, own} {
		p.S.Commit(t, g, topic, 0, 5)
		Eventually(t, soon, func() error { return p.D.wantCommitted(g, topic, 0, 5) })
		Eventually(t, soon, func() error { return m.wantGroup(g, topic, "synced", "") })
	}
	p.D.Commit(t, own, topic, 0, 8)
	gone, err := p.S.Admin().DeleteGroups(context.Background(), group, own)
	must(t, err)
	must(t, gone.Error())
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, -1) })
	m.refreshed(2)
	must(t, p.D.wantCommitted(own, topic, 0, 8))
}

// A consumer that works here is never moved, however the source's group stands, and is told of once.
func groupActive(t *testing.T, p Pair, m *Daemon) {
	const topic, group = "active", "g-active"
	filled(t, p, topic, 100)
	p.S.Commit(t, group, topic, 0, 10)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 10) })
	member := p.D.Join(t, group, topic)
	member.Commit(t, topic, 90)
	p.S.Commit(t, group, topic, 0, 20)
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "skipped", "a") })
	m.refreshed(3)
	must(t, p.D.wantCommitted(group, topic, 0, 90))
	member.Leave(t)
	m.refreshed(3)
	must(t, p.D.wantCommitted(group, topic, 0, 90)) // it went on here by itself
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "skipped", "ahead") })
	if n := m.logLines("groups skipped", group); n != 1 {
		t.Errorf("%d log lines say that %s is skipped", n, group)
	}
	p.S.Commit(t, group, topic, 0, 95) // the source has overtaken it
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 95) })
}

// Brokers refuse commits to a group with members, whatever topic they read. Nothing else is held up by that.
func groupElsewhere(t *testing.T, p Pair, m *Daemon) {
	const topic, group, other = "elsewhere", "g-elsewhere", "g-elsewhere-other"
	filled(t, p, topic, 100)
	p.D.Topic(t, "elsewhere-own", 1)
	member := p.D.Join(t, group, "elsewhere-own")
	p.S.Commit(t, group, topic, 0, 10)
	p.S.Commit(t, other, topic, 0, 20)
	Eventually(t, soon, func() error { return p.D.wantCommitted(other, topic, 0, 20) })
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "skipped", "active") })
	must(t, p.D.wantCommitted(group, topic, 0, -1))
	member.Leave(t)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 10) })
}

// A group that somebody moved forward here is not moved back.
func groupAhead(t *testing.T, p Pair, m *Daemon) {
	const topic, group = "ahead", "g-ahead"
	filled(t, p, topic, 100)
	p.S.Commit(t, group, topic, 0, 10)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 10) })
	p.D.Commit(t, group, topic, 0, 50)
	p.S.Commit(t, group, topic, 0, 30)
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "skipped", "ahead") })
	m.refreshed(2)
	must(t, p.D.wantCommitted(group, topic, 0, 50))
	p.S.Commit(t, group, topic, 0, 60)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 60) })
}

// After a stop the groups are the destination's own.
func groupStopped(t *testing.T, p Pair, m *Daemon) {
	const topic, group = "stopped", "g-stopped"
	filled(t, p, topic, 100)
	p.S.Commit(t, group, topic, 0, 50)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 50) })
	m.Do("stop", "--mirror", "east", "--topics", topic)
	p.D.Commit(t, group, topic, 0, 20) // its operator goes back
	p.S.Commit(t, group, topic, 0, 80)
	m.refreshed(3)
	must(t, p.D.wantCommitted(group, topic, 0, 20))
}

// What the source's group has committed up to the stop is there when stop returns, though no refresh came between.
func groupLastCommit(t *testing.T, p Pair, m *Daemon) {
	const topic, group = "last", "g-last"
	filled(t, p, topic, 100)
	for i := range int64(5) {
		name := fmt.Sprint(topic, i)
		filled(t, p, name, 100)
		p.S.Commit(t, group, name, 0, 10)
		Eventually(t, soon, func() error { return p.D.wantCommitted(group, name, 0, 10) })
		p.S.Commit(t, group, name, 0, 90+i)
		m.Do("stop", "--mirror", "east", "--topics", name)
		must(t, p.D.wantCommitted(group, name, 0, 90+i))
	}
}

func groupPaused(t *testing.T, p Pair, m *Daemon) {
	const topic, group = "paused", "g-paused"
	filled(t, p, topic, 100)
	p.S.Commit(t, group, topic, 0, 10)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 10) })
	m.Do("pause", "--mirror", "east", "--topics", topic)
	p.S.Commit(t, group, topic, 0, 60)
	m.refreshed(2)
	must(t, p.D.wantCommitted(group, topic, 0, 10))
	m.Do("resume", "--mirror", "east", "--topics", topic)
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 60) })
}

// Groups with members at the source are mirrored all the same, of whichever protocol.
func groupMembers(t *testing.T, p Pair, m *Daemon) {
	const topic = "members"
	filled(t, p, topic, 100)
	for kind, opts := range map[string][]kgo.Opt{"classic": nil, "consumer": {nextGeneration()}} {
		group := "g-members-" + kind
		member := p.S.Join(t, group, topic, opts...)
		member.Commit(t, topic, 42)
		Eventually(t, soon, func() error { return p.D.wantCommitted(group, topic, 0, 42) })
		Eventually(t, soon, func() error {
			row, err := m.GroupRow(group, topic, 0)
			if err == nil && row.Type != kind {
				err = fmt.Errorf("describe says that %s is %s", group, row.Type)
			}
			return err
		})
		member.Leave(t)
		again := p.D.Join(t, group, topic, opts...) // and the copy serves members of the same protocol
		if first := again.First(t); first != 42 {
			t.Errorf("a %s member begins at %d at the destination", kind, first)
		}
		again.Leave(t)
	}
}

// Share groups have a start offset instead; the same rules hold for it.
func groupShare(t *testing.T, p Pair, m *Daemon) {
	const topic, group = "share", "g-share"
	filled(t, p, topic, 100)
	at := func(offset, want int64) {
		t.Helper()
		p.S.ShareStart(t, group, topic, offset)
		Eventually(t, soon, func() error {
			got, err := p.D.ShareStartOf(group, topic)
			if err == nil && got != want {
				err = fmt.Errorf("share group begins at %d, want %d", got, want)
			}
			return err
		})
	}
	at(25, 25)
	at(70, 70)
	at(10, 10)
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "synced", "") })
	m.Do("stop", "--mirror", "east", "--topics", topic)
	p.S.ShareStart(t, group, topic, 90)
	m.refreshed(2)
	if got, err := p.D.ShareStartOf(group, topic); err != nil || got != 10 {
		t.Errorf("after the stop the share group begins at %d (%v)", got, err)
	}
}

// A name that means another kind of group here is told and left alone.
func groupOfAnotherType(t *testing.T, p Pair, m *Daemon) {
	const topic, group = "types", "g-types"
	filled(t, p, topic, 100)
	p.D.ShareStart(t, group, topic, 7)
	p.S.Commit(t, group, topic, 0, 50)
	Eventually(t, soon, func() error { return m.wantGroup(group, topic, "failed", "share group") })
	if got, err := p.D.ShareStartOf(group, topic); err != nil || got != 7 {
		t.Errorf("the share group begins at %d (%v)", got, err)
	}
	Eventually(t, soon, func() error {
		return errors.Join(m.wantTold("groups", group), m.wantEvent("refresh step failed", group))
	})
	if m.Metric("mirrord_group_sync_total", `status="failed"`) == 0 {
		t.Error("the failure is not counted")
	}
}

// A group may span topics that are mirrored, stopped and not ours; only the first are touched.
func groupSpans(t *testing.T, p Pair, m *Daemon) {
	const group = "g-spans"
	filled(t, p, "spans-1", 100)
	filled(t, p, "spans-2", 100)
	m.Do("stop", "--mirror", "east", "--topics", "spans-2")
	for _, c := range []*Cluster{p.S, p.D} {
		c.Topic(t, "unmirrored", 1)
		c.Send(t, nil, Numbered("unmirrored", 0, 0, 100)...)
	}
	p.D.Commit(t, group, "spans-2", 0, 9)
	p.D.Commit(t, group, "unmirrored", 0, 7)
	for _, topic := range []string{"spans-1", "spans-2", "unmirrored"} {
		p.S.Commit(t, group, topic, 0, 50)
	}
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, "spans-1", 0, 50) })
	gone, err := p.S.Admin().DeleteGroups(context.Background(), group)
	must(t, err)
	must(t, gone.Error())
	Eventually(t, soon, func() error { return p.D.wantCommitted(group, "spans-1", 0, -1) })
	must(t, p.D.wantCommitted(group, "spans-2", 0, 9))
	must(t, p.D.wantCommitted(group, "unmirrored", 0, 7))
}

// Offsets that nobody commits any more at the source live as long at the destination, whose brokers would forget them:
// they are committed again in time. With MIRRORD_STORM=1 the brokers' patience is waited out, too.
func TestGroupsOutliveTheDestinationsRetention(t *testing.T) {
	t.Parallel()
	p := Pair{SharedPair(t).S, StartCluster(t, Options{Props: map[string]string{"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}})}
	p.S.Topic(t, "t", 1)
	p.S.Send(t, nil, Numbered("t", 0, 0, 100)...)
	p.S.Commit(t, "g", "t", 0, 50)
	m := NewDaemon(t, p.Proxied("t"))
	m.Start()
	Eventually(t, soon, func() error { return p.D.wantCommitted("g", "t", 0, 50) })
	const offsetCommit = 8
	before := p.D.Nodes[0].Proxy.Requests(offsetCommit)
	Eventually(t, soon, func() error { // after a quarter of the minute
		if p.D.Nodes[0].Proxy.Requests(offsetCommit) == before {
			return errors.New("the offset is not committed again")
		}
		return nil
	})
	must(t, p.D.wantCommitted("g", "t", 0, 50))
	if os.Getenv("MIRRORD_STORM") == "" {
		return
	}
	p.D.Commit(t, "own", "t", 0, 1) // shows that the brokers do forget
	Eventually(t, 3*time.Minute, func() error { return p.D.wantCommitted("own", "t", 0, -1) })
	must(t, p.D.wantCommitted("g", "t", 0, 50))
}

// Member is a consumer in a group.
type Member struct {
	cl     *kgo.Client
	cancel context.CancelFunc
}

// nextGeneration makes a member of the KIP-848 protocol.
func nextGeneration() kgo.Opt {
	return kgo.WithContext(context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)) //nolint:staticcheck // the client's key
}

// Join starts a consumer that commits nothing by itself, and waits until it has its partitions.
func (c *Cluster) Join(t testing.TB, group, topic string, opts ...kgo.Opt) *Member {
	t.Helper()
	assigned := make(chan struct{}, 10)
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(c.addrs()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.DisableClientMetrics(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	must(t, err)
	t.Cleanup(cl.Close)
	ctx, cancel := context.WithCancel(context.Background())
	go cl.PollFetches(ctx)
	select {
	case <-assigned:
	case <-time.After(soon):
		t.Fatalf("the member of %s got nothing to read", group)
	}
	return &Member{cl, cancel}
}

// Commit commits as a member.
func (m *Member) Commit(t testing.TB, topic string, offset int64) {
	t.Helper()
	var failed error
	m.cl.CommitOffsetsSync(context.Background(), map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: offset}}},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			failed = err
		})
	must(t, failed)
}

// Leave ends the member; the group is empty at once.
func (m *Member) Leave(t testing.TB) {
	t.Helper()
	m.cancel()
	must(t, m.cl.LeaveGroupContext(context.Background()))
	m.cl.Close()
}

// First is the offset of the first record that the member reads.
func (m *Member) First(t testing.TB) int64 {
	t.Helper()
	m.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	for ctx.Err() == nil {
		for _, r := range m.cl.PollFetches(ctx).Records() {
			return r.Offset
		}
	}
	t.Fatal("the member reads nothing")
	return -1
}
