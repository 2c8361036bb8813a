package coordinator

import (
	"fmt"
	"testing"
	"time"

	"mirrord/internal/mirror"
)

func TestCommandsDriveATopicThroughItsLife(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 3, "orders")
	if n := i.path.running(); n != 3 {
		t.Fatalf("%d partitions run, want 3", n)
	}
	do := func(verb mirror.Verb, topics ...string) mirror.Outcome {
		t.Helper()
		return i.command(mirror.Command{Verb: verb, Mirror: "east", Topics: topics})
	}
	do(mirror.VerbPause, "orders")
	i.reach("east", 3, mirror.Paused, "orders")
	if s := i.state("east", "orders", 0); s.Previous != mirror.Pausing {
		t.Errorf("previous state of PAUSED is %s", s.Previous)
	}
	do(mirror.VerbResume, "orders")
	i.reach("east", 3, mirror.Mirroring, "orders")
	do(mirror.VerbStop, "orders")
	i.reach("east", 3, mirror.Stopped, "orders")
	p := mirror.Partition{Mirror: "east", TopicID: topicID("orders"), Index: 1}
	if at, ok := i.store.View().LastMirror(p); !ok || at != (mirror.Position{LeaderEpoch: 7, Offset: 100}) {
		t.Errorf("last mirrored position %v %v", at, ok)
	}
	if n, _ := i.called("promote"); n != 3 {
		t.Errorf("%d partitions promoted, want 3", n)
	}
	for _, verb := range []mirror.Verb{mirror.VerbPause, mirror.VerbResume, mirror.VerbRecover} {
		if out := do(verb, "orders"); len(refusedTopics(out)) != 1 {
			t.Errorf("%s of a STOPPED topic: %+v", verb, out)
		}
	}
	if out := do(mirror.VerbStop, "orders"); refusals(out) != 0 {
		t.Errorf("stop of a STOPPED topic: %+v", out)
	}
	do(mirror.VerbStart, "orders")
	i.reach("east", 3, mirror.Mirroring, "orders")
	if _, ok := i.store.View().LastMirror(p); ok {
		t.Error("the last mirrored position stays although it is mirrored again")
	}
}

func TestTwoInstancesShareTheShardsAndTakeOver(t *testing.T) {
	b := newBench(t)
	one := b.start("one")
	one.owns(20*time.Second, all)
	one.mirrored("east", 12, "orders")
	epoch := one.state("east", "orders", 0).StateEpoch
	two := b.start("two")
	some := func(n int) bool { return n > 0 && n < testShards }
	one.owns(20*time.Second, some)
	two.owns(20*time.Second, some)
	b.eventually(10*time.Second, func() string {
		if a, b := one.path.running(), two.path.running(); a+b != 12 || a == 0 || b == 0 {
			return fmt.Sprintf("%d and %d partitions run, want 12 together", a, b)
		}
		return ""
	})
	began := time.Now()
	one.stop()
	two.owns(5*time.Second, all)
	t.Logf("taken over from a leaving instance within %v", time.Since(began))
	two.reach("east", 12, mirror.Mirroring, "orders")
	if got := two.state("east", "orders", 0).StateEpoch; got != epoch {
		t.Errorf("state epoch %d after takeovers, want %d: nothing happened to the partition", got, epoch)
	}
	if claim, _ := two.store.View().Claim(0); claim.Owner != "two" || claim.Number < 2 {
		t.Errorf("claim %+v", claim)
	}
	if tgt, ok := two.path.target("orders", 0); !ok || tgt.PredecessorAlive {
		t.Errorf("the predecessor gave up in order: %+v", tgt)
	}
	if out := two.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"ord.*"}}); refusals(out) != 0 {
		t.Errorf("stop: %+v", out)
	}
	two.reach("east", 12, mirror.Stopped, "orders")
}

// A member that the group has dropped stops everything at once and comes back as a new one.
func TestR16_LostSessionStopsAtOnce(t *testing.T) {
	b := newBench(t)
	reset := make(chan struct{}, 10)
	one := b.start("one", func(d *Deps) { d.LeaseLost = func() { reset <- struct{}{} } })
	one.owns(20*time.Second, all)
	one.mirrored("east", 2, "orders")
	if err := one.c.Lease(); err != nil {
		t.Fatal(err)
	}
	claim, _ := one.store.View().Claim(0)
	one.kick()
	select {
	case <-reset:
	case <-time.After(5 * time.Second):
		t.Fatal("connections were not reset")
	}
	one.owns(20*time.Second, all)
	b.eventually(10*time.Second, func() string {
		if n := one.path.running(); n != 2 {
			return fmt.Sprintf("%d partitions run again", n)
		}
		return ""
	})
	if again, _ := one.store.View().Claim(0); again.Number <= claim.Number {
		t.Errorf("claim %d after claim %d", again.Number, claim.Number)
	}
	if tgt, _ := one.path.target("orders", 0); !tgt.PredecessorAlive {
		t.Error("the claim before was not given up in order, and the data path is not told")
	}
}

func TestThousandsOfPartitionsStopInFewSteps(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	const n = 3000
	var topics []string
	for k := range n {
		topics = append(topics, fmt.Sprintf("t%04d", k))
	}
	i.mirrored("east", 1, topics...)
	began := time.Now()
	out := i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"t[0-9]+"}})
	if len(out.Topics) != n || refusals(out) > 0 {
		t.Fatalf("%d topics in the outcome, %d refused", len(out.Topics), refusals(out))
	}
	i.reach("east", 1, mirror.Stopped, topics...)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	} else {
		t.Logf("took %v", took)
	}
	if parts, batches := i.called("promote"); parts != n || batches > 30 {
		t.Errorf("%d partitions promoted in %d batches", parts, batches)
	}
	if lines := b.log.count("state changed"); lines > 100 {
		t.Errorf("%d log lines about single changes", lines)
	}
}
