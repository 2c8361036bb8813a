package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mirrord/internal/mirror"
)

const keyJoinGroup = 11

// apart are the settings of two instances of which only the first reaches the destination through the proxies.
func (p Pair) apart(session string, topics ...string) (proxied, direct Settings) {
	proxied, direct = p.Mirror(topics...), p.Mirror(topics...)
	proxied.Destination, proxied.Direct = p.D.Proxied(), p.D.Bootstrap()
	for _, s := range []*Settings{&proxied, &direct} {
		s.Extra = []string{"session_timeout: " + session}
	}
	return proxied, direct
}

// An owner freezes in the middle of a state transaction, its commit still on the way. Another instance takes over. Then
// the commit arrives and the owner goes on: the group coordinator refuses it, the transaction leaves nothing behind, and
// the command in it was executed by the successor, once.
func TestR15_FormerOwnerCannotWriteState(t *testing.T) {
	p := SharedPair(t)
	p.S.Topic(t, "t", 6)
	first, second := p.apart("3s", "t")
	former := NewDaemon(t, first)
	former.Start()
	former.Await("MIRRORING", 20*time.Second, "t")
	proxy := p.D.Nodes[0].Proxy
	refused := former.Metric("mirrord_state_transactions_total", `outcome="aborted"`)
	proxy.Hold(keyTxnOffsetCommit)
	former.Do("pause", "--mirror", "east", "--topics", "t", "--no-wait")
	Eventually(t, 10*time.Second, func() error {
		if proxy.Held() == 0 {
			return fmt.Errorf("no commit is on its way")
		}
		return nil
	})
	former.Freeze()
	successor := NewDaemon(t, second)
	successor.Start()
	successor.Await("PAUSED", 20*time.Second, "t")
	want(t, "shards of the successor", successor.Metric("mirrord_shards_owned"), 5)
	proxy.Heal()
	former.Thaw()
	joined(t, former, successor)
	if got := former.Metric("mirrord_state_transactions_total", `outcome="aborted"`); got <= refused {
		t.Errorf("the former owner counts %v refused transactions, %v before", got, refused)
	}
	successor.Do("resume", "--mirror", "east", "--topics", "t")
	answeredOnce(t, p.D, 10*time.Second)
}

// A frozen owner goes on after its shards have gone to another instance: its lease is over, so of all that it was about to
// do nothing leaves, until it has joined again.
func TestR16_NothingLeavesAfterTheLease(t *testing.T) {
	p := SharedPair(t)
	p.S.Topic(t, "t", 6)
	first, second := p.apart("3s", "t")
	former := NewDaemon(t, first)
	former.Start()
	former.Await("MIRRORING", 20*time.Second, "t")
	load := StartLoad(t, p.S, 3000, 6, "t")
	progress(t, p, "t", 6, 20*time.Second)
	former.Freeze()
	successor := NewDaemon(t, second)
	successor.Start()
	progress(t, p, "t", 6, 30*time.Second)
	var thawed, late, again atomic.Int64
	p.D.Nodes[0].Proxy.Watch(func(key int16, frame []byte) {
		switch {
		case thawed.Load() == 0 || again.Load() > 0:
		case key == keyJoinGroup:
			again.Add(1)
		case key == keyProduce && ofData(frame), key == keyWriteTxnMarkers, key == keyDeleteRecords:
			late.Add(1)
		}
	})
	thawed.Add(1)
	former.Thaw()
	Eventually(t, 20*time.Second, func() error {
		if again.Load() == 0 {
			return fmt.Errorf("the former owner does not join again")
		}
		return nil
	})
	if n := late.Load(); n > 0 {
		t.Errorf("%d writes left after the lease was over", n)
	}
	if !strings.Contains(former.Log(), "lease lost") {
		t.Error("the former owner does not tell that its lease was over")
	}
	joined(t, former, successor)
	load.Stop(t)
	AwaitLevel(t, p.S, p.D, 30*time.Second, "t")
	Identical(t, p.S, p.D, "t")
	SoundState(t, p.D)
}

// owners is which instance owns each partition of a topic, by describe.
func owners(d *Daemon, topic string) map[int32]string {
	d.t.Helper()
	of := map[int32]string{}
	for _, row := range d.Describe() {
		if row.Topic == topic {
			of[row.Partition] = row.Owner
		}
	}
	return of
}

// Two instances under load: a second one joins, one is killed, one is frozen, one leaves in order. What stays with an
// instance stands still for no longer than a second; what moves is taken over in time.
func TestTwoInstances(t *testing.T) {
	const partitions, session = 12, 3 * time.Second
	p := SharedPair(t)
	p.S.Topic(t, "t", partitions)
	s := p.Mirror("t")
	s.Extra = []string{"session_timeout: 3s"}
	a, b := NewDaemon(t, s), NewDaemon(t, s)
	a.Start()
	a.Await("MIRRORING", 20*time.Second, "t")
	load := StartLoad(t, p.S, 3000, partitions, "t")
	progress(t, p, "t", partitions, 20*time.Second)
	pace := WatchPace(t, p.D, "t", partitions)

	event := func(name string, moves time.Duration, happen func()) {
		t.Helper()
		before := owners(a, "t")
		pace.Mark()
		happen()
		progress(t, p, "t", partitions, 30*time.Second)
		joined := owners(a, "t")
		stays := func(i int32) bool { return before[i] == joined[i] }
		pauses := pace.Longest()
		kept, moved := longestOf(pauses, stays), longestOf(pauses, func(i int32) bool { return !stays(i) })
		t.Logf("%s: what stays stood still for %v, what moves for %v", name, kept.Round(time.Millisecond), moved.Round(time.Millisecond))
		if kept > Unhurried(time.Second) || moved > Unhurried(moves) {
			t.Errorf("%s: what stays stood still for %v, what moves for %v, allowed are %v and %v", name, kept, moved, time.Second, moves)
		}
	}
	event("a second instance joins", 2*time.Second, func() { b.Start(); joined(t, a, b) })
	if of := owners(a, "t"); len(distinct(of)) != 2 {
		t.Errorf("owners: %v", of)
	}
	notCoordinator(t, a, b)
	event("an instance is killed", session+5*time.Second, func() { b.Kill(); joined(t, a) })
	event("it comes back", 2*time.Second, func() { b.Start(); joined(t, a, b) })
	event("an instance freezes", session+5*time.Second, func() { b.Freeze(); joined(t, a) })
	event("it goes on", 2*time.Second, func() { b.Thaw(); joined(t, a, b) })
	event("an instance leaves in order", time.Second, func() { b.Stop(); joined(t, a) })
	load.Stop(t)
	AwaitLevel(t, p.S, p.D, 30*time.Second, "t")
	Identical(t, p.S, p.D, "t")
	SoundState(t, p.D)
}

func distinct(of map[int32]string) map[string]bool {
	names := map[string]bool{}
	for _, name := range of {
		names[name] = true
	}
	return names
}

// notCoordinator asks one instance to write the state of a partition that the other one owns: it names the other.
func notCoordinator(t *testing.T, asked, other *Daemon) {
	t.Helper()
	for i := range int32(12) {
		req := mirror.WriteMirrorStatesRequest{MirrorName: "east", Topics: []mirror.WriteTopic{{
			Name:       "t",
			Partitions: []mirror.WritePartition{{PartitionIndex: i, LastMirrorEpoch: -1, State: mirror.Mirroring}},
		}}}
		var resp mirror.WriteMirrorStatesResponse
		want(t, "code of HTTP", asked.Post("/api/v1/WriteMirrorStates", req, &resp), 200)
		if got := resp.Topics[0].Partitions[0]; got.ErrorCode == mirror.CodeNotCoordinator {
			if !strings.Contains(got.ErrorMessage, other.http) {
				t.Errorf("the answer does not name the owner: %s", got.ErrorMessage)
			}
			return
		}
	}
	t.Error("one instance owns all partitions")
}

// A rolling restart with static membership moves nothing: each instance is gone for a moment, and no partition stands still
// for longer than a second.
func TestRollingRestart(t *testing.T) {
	const partitions = 12
	p := SharedPair(t)
	p.S.Topic(t, "t", partitions)
	var pair []*Daemon
	for _, name := range []string{"one", "two"} {
		s := p.Mirror("t")
		s.Extra = []string{"instance_id: " + name, "session_timeout: 10s"}
		pair = append(pair, NewDaemon(t, s))
		pair[len(pair)-1].Start()
	}
	joined(t, pair...)
	pair[0].Await("MIRRORING", 20*time.Second, "t")
	load := StartLoad(t, p.S, 3000, partitions, "t")
	progress(t, p, "t", partitions, 20*time.Second)
	pace := WatchPace(t, p.D, "t", partitions)
	before := owners(pair[0], "t")
	for i, m := range pair {
		pace.Mark()
		m.p.signal(syscall.SIGTERM)
		if !m.p.wait(10 * time.Second) {
			t.Fatal("it does not end")
		}
		m.Launch()
		Eventually(t, 20*time.Second, func() error { return m.get("/readyz", &bytes.Buffer{}) })
		progress(t, p, "t", partitions, 20*time.Second)
		longest := longestOf(pace.Longest(), func(int32) bool { return true })
		t.Logf("restart of instance %d: no partition stood still for longer than %v", i+1, longest.Round(time.Millisecond))
		if longest > Unhurried(time.Second) {
			t.Errorf("restart of instance %d: a partition stood still for %v", i+1, longest)
		}
	}
	after := owners(pair[0], "t")
	for i := range before {
		want(t, fmt.Sprint("owner of partition ", i), strings.Contains(after[i], strings.Split(before[i], "-")[0]), true)
	}
	load.Stop(t)
	AwaitLevel(t, p.S, p.D, 30*time.Second, "t")
	Identical(t, p.S, p.D, "t")
	SoundState(t, p.D)
}
