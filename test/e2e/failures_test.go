package e2e

import (
	"fmt"
	"testing"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// pauses are the times that partitions of a topic have spent in FAILED before they were tried again, by attempt.
func pauses(log []StateRecord, topic string) (all []time.Duration) {
	var failed StateRecord
	epoch, waits := int32(-1), false
	for _, r := range log {
		s, ok := r.Record.(statestore.PartitionState)
		if !ok || s.Topic != topic || s.StateEpoch == epoch {
			continue
		}
		if epoch = s.StateEpoch; waits {
			all = append(all, r.At.Sub(failed.At))
		}
		if waits = s.State == mirror.Failed; waits {
			failed = r
		}
	}
	return all
}

// A partition that fails for good because of a limit on the destination is tried again after pauses that double, ±20 %, up
// to the longest one, until the attempts are used up. Then it waits for the operator. All the while the attempt is shown,
// other partitions go on, and little is logged. It obeys pause and stop, and recover heals it (case B110).
func TestB110_AFailureIsTriedAgainEverMoreRarely(t *testing.T) {
	t.Parallel()
	const attempts, first, longest = 5, 200 * time.Millisecond, 1600 * time.Millisecond
	p := GuardedPair(t)
	for _, r := range documentedRights(t) {
		map[string]*Cluster{"source": p.S, "destination": p.D}[r.cluster].Grant(t, r.rule(Limited))
	}
	for _, topic := range []string{"bad", "spent", "healthy"} {
		p.S.Topic(t, topic, 1)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 5)...)
	}
	s := p.As(t, Limited, "bad", "spent", "healthy")
	s.Retry = fmt.Sprintf("initial_backoff: %v, max_backoff: %v, max_attempts: %d", first, longest, attempts)
	m := NewDaemon(t, s)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "bad", "spent", "healthy")
	m.Await("MIRRORING", soon, "bad", "spent", "healthy")

	limit := func(topic string) string { return "DENY WRITE User:" + Limited + " TOPIC LITERAL " + topic }
	p.D.Grant(t, limit("bad"), limit("spent"))
	p.S.Send(t, nil, append(Numbered("bad", 0, 5, 1), Numbered("spent", 0, 5, 1)...)...)
	load := StartLoad(t, p.S, 100, 1, "healthy")
	for _, topic := range []string{"bad", "spent"} {
		awaitRow(t, m, topic, 0, soon, func(r Partition) bool { return r.State == "FAILED" && r.RetryAttempt > 0 })
		row := awaitRow(t, m, topic, 0, soon, func(r Partition) bool { return r.State == "FAILED" && r.RetryAttempt == attempts })
		says(t, topic, row.ErrorMessage, "TOPIC_AUTHORIZATION_FAILED")
		if row.Lag != 1 || row.LagSeconds == 0 {
			t.Errorf("%s: %+v", topic, row)
		}
	}
	m.refreshed(3)
	log := SoundState(t, p.D)
	for _, topic := range []string{"bad", "spent"} {
		took := pauses(log, topic)
		t.Logf("%s was tried again after %v", topic, took)
		want(t, "retries of "+topic, len(took), attempts)
		for i, d := range took {
			b := float64(min(first<<i, longest))
			if d < time.Duration(0.8*b)-2*time.Millisecond || d > time.Duration(1.2*b)+Unhurried(400*time.Millisecond) {
				t.Errorf("%s: retry %d came after %v, wanted is %v ± 20 %%", topic, i, d, time.Duration(b))
			}
		}
		if n := m.logLines("topic=" + topic); n > 3*(attempts+1) {
			t.Errorf("%s: %d lines were logged about %d failures", topic, n, attempts+1)
		}
	}
	want(t, "failures counted", m.Metric("mirrord_partition_failures_total", `kind="refused"`), 2*(attempts+1))
	load.Stop(t)
	AwaitLevel(t, p.S, p.D, soon, "healthy")
	healthy, err := m.Partition("healthy", 0)
	must(t, err)
	want(t, "state of healthy", healthy.State, "MIRRORING")

	m.Do("pause", "--mirror", "east", "--topics", "spent")
	m.Do("stop", "--mirror", "east", "--topics", "spent")
	must(t, writable(p.D, "spent", 1))
	p.D.Revoke(t, limit("bad"))
	m.Do("recover", "--mirror", "east", "--topics", "bad")
	AwaitLevel(t, p.S, p.D, soon, "bad")
	awaitRow(t, m, "bad", 0, soon, func(r Partition) bool { return r.State == "MIRRORING" && r.RetryAttempt == 0 && r.ErrorMessage == "" })
	Identical(t, p.S, p.D, "bad", "healthy")
	SoundState(t, p.D)
}

// Another cluster answers at the address of a mirror's source: that mirror alone stops, at once and after a restart, and
// nothing of the other cluster comes into its topics, though they have the same names and longer logs. The other mirror of
// the same daemon goes on, stop is obeyed, and once the address is right again recover goes on where it was.
func TestAnotherClusterAtTheSourcesAddress(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	other := StartCluster(t, Options{})
	for i, topic := range []string{"t", "kept"} {
		p.S.Topic(t, topic, 2)
		other.Topic(t, topic, 2)
		p.S.Send(t, nil, append(Numbered(topic, 0, i, 50), Numbered(topic, 1, i, 50)...)...)
		other.Send(t, nil, append(Numbered(topic, 0, 7, 500), Numbered(topic, 1, 7, 500)...)...)
	}
	other.Topic(t, "w", 1)
	front, err := newProxy(freeAddr(), p.S.Proxied())
	must(t, err)
	t.Cleanup(front.close)
	s := p.Mirror("t", "kept")
	s.Source = front.Addr()
	s.Extra = []string{"instance_id: one"}
	m := NewDaemon(t, s)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t", "kept")
	m.Do("create", "--mirror", "west", "--mirror-config", propertiesFile(t, "bootstrap.servers="+other.Bootstrap(), "topics.include=w"))
	m.Await("MIRRORING", soon, "t", "kept", "w")

	p.S.Nodes[0].Proxy.Cut()
	front.Aim(other.Bootstrap())
	for _, round := range []string{"running", "restarted"} {
		for _, topic := range []string{"t", "kept"} {
			row := awaitRow(t, m, topic, 1, 2*soon, func(r Partition) bool { return r.State == "FAILED" && r.RetryAttempt == -1 })
			says(t, round, row.ErrorMessage, "another cluster answers", p.S.ID, other.ID)
		}
		other.Send(t, nil, Numbered("w", 0, 0, 10)...)
		AwaitLevel(t, other, p.D, soon, "w")
		m.refreshed(2)
		for _, topic := range []string{"t", "kept"} {
			must(t, p.D.wantEnd(topic, 0, 50))
			must(t, p.D.wantEnd(topic, 1, 50))
		}
		m.Stop()
		m.Start()
	}
	m.Do("stop", "--mirror", "east", "--topics", "kept")
	must(t, writable(p.D, "kept", 2))

	p.S.Nodes[0].Proxy.Heal()
	front.Aim(p.S.Proxied())
	p.S.Send(t, nil, Numbered("t", 0, 50, 10)...)
	m.Do("recover", "--mirror", "east", "--topics", "t")
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
	Identical(t, other, p.D, "w")
	SoundState(t, p.D)
}

// Where no leader epoch can be raised, continuous fencing tries once, not again and again, says so once, and mirrors on.
func TestContinuousFencingWhereNothingCanBeRaised(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 4)
	s := p.Mirror("t")
	s.MirrorExtra = []string{"epoch_fencing: continuous"}
	m := NewDaemon(t, s)
	m.Start()
	asked := func() int { return Transitions(SoundState(t, p.D))[Transition{mirror.Mirroring, mirror.EpochFencing}] }
	for round := range 2 {
		for i := range int32(4) {
			p.S.Send(t, nil, Numbered("t", i, 10*round, 10)...)
		}
		AwaitLevel(t, p.S, p.D, soon, "t")
		m.refreshed(4)
		m.Await("MIRRORING", soon, "t")
		if n := asked(); n < 4 || n > 4*(round+1) {
			t.Errorf("EPOCH_FENCING was entered %d times by 4 partitions, after %d leaders of the source", n, round+1)
		}
		if round == 0 { // a broker that comes back leads under a new epoch
			p.S.Kill(t, 1)
			p.S.Launch(t, 1)
			p.S.AwaitUp(t)
			epochs, _, _ := p.S.epochs(t, "t")
			t.Logf("leader epochs of the source are %v", epochs)
		}
	}
	want(t, "times that it is said", m.logLines("leader epochs cannot be raised"), 1)
	Identical(t, p.S, p.D, "t")
	m.Do("stop", "--mirror", "east", "--topics", "t")
	promoted(t, p, m, "t")
}
