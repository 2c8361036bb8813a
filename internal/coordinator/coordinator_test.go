package coordinator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

func TestCommandsDriveATopicThroughItsLife(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 3, "orders")
	b.eventually(5*time.Second, func() string {
		if n := i.path.running(); n != 3 {
			return fmt.Sprintf("%d partitions run, want 3", n)
		}
		return ""
	})
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
	compared, _ := i.called("align")
	do(mirror.VerbStart, "orders")
	i.reach("east", 3, mirror.LogTruncation, "orders")
	do(mirror.VerbStart, "orders") // once it is answered, all that followed from the first has begun
	if n, _ := i.called("align"); n != compared {
		t.Error("logs are compared before the topic is ready for it (protocol R20)")
	}
	i.ready("east", "orders")
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

// A static member that restarts gets its shards back without the group having noticed that it was away.
func TestStaticMemberComesBack(t *testing.T) {
	b := newBench(t)
	static := func(d *Deps) { d.Config.InstanceID = "host-1" }
	one := b.start("one", static)
	one.owns(20*time.Second, all)
	one.mirrored("east", 2, "orders")
	one.stop()
	again := b.start("one", static)
	began := time.Now()
	again.owns(20*time.Second, all)
	again.reach("east", 2, mirror.Mirroring, "orders")
	if took := time.Since(began); took > testSession {
		t.Errorf("took %v", took)
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
	t.Logf("took %v", time.Since(began))
	if parts, batches := i.called("promote"); parts != n || batches > 30 {
		t.Errorf("%d partitions promoted in %d batches", parts, batches)
	}
	if lines := b.log.count("state changed"); lines > 100 {
		t.Errorf("%d log lines about single changes", lines)
	}
}

func TestFailuresAreRetriedAndForgottenAfterProgress(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.breaks("align orders", mirror.Errorf(mirror.Unreachable, "the source does not answer"))
	i.command(mirror.Command{Verb: mirror.VerbCreate, Mirror: "east"})
	i.command(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"orders"}})
	i.found("east", 1, "orders")
	i.reach("east", 1, mirror.Failed, "orders")
	b.eventually(10*time.Second, func() string {
		if n, _ := i.called("align"); n < 6 {
			return fmt.Sprintf("aligned %d times", n)
		}
		return ""
	})
	if s := i.state("east", "orders", 0); s.RetryAttempt != 0 {
		t.Errorf("an unreachable source used up %d attempts", s.RetryAttempt)
	}
	i.breaks("align orders", nil)
	b.eventually(20*time.Second, func() string {
		if s := i.state("east", "orders", 0); s.State != mirror.Mirroring || s.ErrorMessage != "" || s.RetryAttempt != 0 {
			return fmt.Sprintf("%s %q %d", s.State, s.ErrorMessage, s.RetryAttempt)
		}
		return ""
	})
	tgt, _ := i.path.target("orders", 0)
	i.c.Failed(tgt, mirror.Errorf(mirror.Diverged, "5 other records"))
	i.reach("east", 1, mirror.Failed, "orders")
	if s := i.state("east", "orders", 0); s.RetryAttempt != -1 || s.ErrorMessage != "5 other records" {
		t.Errorf("%+v", s)
	}
	stale := tgt
	i.command(mirror.Command{Verb: mirror.VerbRecover, Mirror: "east", Topics: []string{"orders"}})
	i.reach("east", 1, mirror.Mirroring, "orders")
	i.c.Failed(stale, mirror.Errorf(mirror.Diverged, "said about the past"))
	i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"orders"}})
	i.reach("east", 1, mirror.Stopped, "orders")
}

// A stop needs neither the source nor a comparison that is under way.
func TestStopOvertakesASilentSource(t *testing.T) {
	b := newBench(t)
	hangs := make(chan struct{})
	i := b.start("one", func(d *Deps) {
		align := d.Align
		d.Align = func(ctx context.Context, ts []mirror.Target) ([]int64, []error) {
			if ts[0].Topic == "silent" {
				select {
				case hangs <- struct{}{}:
				case <-ctx.Done():
				}
				<-ctx.Done()
				return make([]int64, len(ts)), make([]error, len(ts))
			}
			return align(ctx, ts)
		}
	})
	i.owns(20*time.Second, all)
	i.command(mirror.Command{Verb: mirror.VerbCreate, Mirror: "east"})
	i.command(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"silent"}})
	i.found("east", 1, "silent")
	<-hangs
	began := time.Now()
	i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"silent"}})
	i.reach("east", 1, mirror.Stopped, "silent")
	if took := time.Since(began); took > 10*time.Second { // SPEC §7
		t.Errorf("took %v", took)
	}
	if at, ok := i.store.View().LastMirror(mirror.Partition{Mirror: "east", TopicID: topicID("silent")}); !ok || at != mirror.NoPosition {
		t.Errorf("nothing was mirrored, and %v is recorded", at)
	}
}

// Where the data path has not looked what a log holds, no position is taken from it and nothing is promoted before the
// fillers of an unfinished seeding are removed.
func TestR13_FillersAreRemovedBeforeThePromotion(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.path.unsure = true
	i.owns(20*time.Second, all)
	i.mirrored("east", 3, "orders")
	i.breaks("sweep orders", mirror.Errorf(mirror.Retriable, "fillers are still there"))
	i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"orders"}})
	b.eventually(10*time.Second, func() string {
		if swept, _ := i.called("sweep"); swept < 6 {
			return fmt.Sprintf("%d sweeps", swept)
		}
		return ""
	})
	if n, _ := i.called("promote"); n > 0 {
		t.Errorf("%d partitions are promoted with fillers", n)
	}
	i.breaks("sweep orders", nil)
	i.reach("east", 3, mirror.Stopped, "orders")
	if at, ok := i.store.View().LastMirror(mirror.Partition{Mirror: "east", TopicID: topicID("orders")}); !ok || at != mirror.NoPosition {
		t.Errorf("%v is recorded as mirrored", at)
	}
}

func TestDrainPromotesOnlyWhatIsLevel(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 1, "level", "behind")
	i.mu.Lock()
	i.lag["level"], i.lag["behind"] = 0, 12
	i.mu.Unlock()
	out := i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"level", "behind", "absent"}, Drain: true, TimeoutMillis: 3000})
	if got := refusedTopics(out); strings.Join(got, " ") != "absent behind" {
		t.Fatalf("%+v", out)
	}
	i.reach("east", 1, mirror.Stopped, "level")
	if s := i.state("east", "behind", 0); s.State != mirror.Mirroring {
		t.Errorf("a topic that was not level is %s", s.State)
	}
	for _, at := range out.Topics {
		if at.Topic == "behind" && !strings.Contains(at.Message, "12 records") {
			t.Errorf("%q", at.Message)
		}
	}
}

func TestSlowCommandsDoNotHoldUpOthers(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 1, "orders")
	release := make(chan struct{})
	i.mu.Lock()
	i.resolve = func(items, _ []string) ([]string, map[string]error, error) { <-release; return items, nil, nil }
	i.mu.Unlock()
	slow := i.submit(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"late"}})
	i.command(mirror.Command{Verb: mirror.VerbPause, Mirror: "east", Topics: []string{"orders"}})
	i.reach("east", 1, mirror.Paused, "orders")
	if _, done := i.store.View().Outcome(slow); done {
		t.Fatal("answered before its topics were resolved")
	}
	close(release)
	b.eventually(10*time.Second, func() string {
		if _, done := i.store.View().Outcome(slow); !done {
			return "the slow command has no outcome"
		}
		return ""
	})
	if _, ok := i.store.View().Topic("east", "late"); !ok {
		t.Error("the topic was not started")
	}
}

func TestDeclaredMirrorsAreMadeToMatch(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	d := mirror.DefaultDefinition("east")
	d.TopicsInclude = []string{"a.*"}
	i.c.Declare([]mirror.Definition{d})
	for limit := time.Now().Add(20 * time.Second); !i.c.Joined() && time.Now().Before(limit); {
		runtime.Gosched() // to see the first moment
	}
	if _, ok := i.store.View().Mirror("east"); !ok {
		t.Error("joined, and a declared mirror is not there")
	}
	matches := func(version int32, include string) {
		t.Helper()
		b.eventually(10*time.Second, func() string {
			m, ok := i.store.View().Mirror("east")
			if !ok || !m.Declared || m.Version != version || strings.Join(m.TopicsInclude, " ") != include {
				return fmt.Sprintf("mirror %v %+v", ok, m)
			}
			return ""
		})
	}
	matches(1, "a.*")
	d.TopicsInclude = []string{"a.*", "b"}
	i.c.Declare([]mirror.Definition{d})
	matches(2, "a.* b")
	i.c.Declare(nil)
	i.command(mirror.Command{Verb: mirror.VerbCreate, Mirror: "other"})
	matches(2, "a.* b")
}

// However long an effect has taken, or waited for its cluster, a failure that a moment heals is no reason to give up.
func TestAnEffectIsRepeatedFromItsFirstFailureOn(t *testing.T) {
	began := time.Now()
	p := &part{since: began, epoch: 3}
	refusal := happening{what: failed, err: mirror.Errorf(mirror.Retriable, "leader epoch not known yet")}
	for _, x := range []struct {
		after time.Duration
		want  bool
	}{{time.Hour, true}, {time.Hour + effectGrace, true}, {time.Hour + effectGrace + time.Second, false}} {
		if got := p.repeats(mirror.Target{StateEpoch: 3}, refusal, began.Add(x.after)); got != x.want {
			t.Errorf("repeated %v after the state was entered: %v", x.after, got)
		}
	}
}

// An instance that is killed in the middle of a state transaction leaves it open. The next one, though nobody else is
// there to end it, does not wait for the broker to do so.
func TestAnOpenTransactionOfADeadInstanceDelaysNobody(t *testing.T) {
	b := newBench(t)
	first := b.start("one")
	first.owns(20*time.Second, all)
	first.stop()
	dead, err := kgo.NewClient(kgo.SeedBrokers(b.fake.ListenAddrs()...), kgo.TransactionalID(first.store.TransactionalID()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	if err := dead.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	of := &kgo.Record{Topic: statestore.StateTopic, Key: []byte{7, 7}}
	if err := dead.ProduceSync(t.Context(), of).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.start("two").owns(10*time.Second, all)
}

// What an operator commanded while a refresh was under way is not undone by what the refresh found before.
func TestPutDoesNotUndoACommand(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 1, "orders")
	stale, _ := i.store.View().Topic("east", "orders")
	i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"orders"}})
	stale.Finding = statestore.Finding{Kind: mirror.SourceGone, Message: "gone"}
	if err := i.c.Put(t.Context(), "east", stale); err != nil {
		t.Fatal(err)
	}
	now, _ := i.store.View().Topic("east", "orders")
	if now.Wish != mirror.Stopped || now.Finding.Message != "gone" {
		t.Errorf("%+v", now)
	}
	from := stale
	stale.Wish, stale.ByCommand = mirror.Paused, false
	for _, x := range []struct {
		from statestore.Topic
		wish mirror.State
	}{{from, mirror.Stopped}, {now, mirror.Paused}} { // decided before the command, and after it
		if err := i.c.Put(t.Context(), "east", statestore.Rewish{Topic: stale, From: x.from}); err != nil {
			t.Fatal(err)
		}
		if now, _ = i.store.View().Topic("east", "orders"); now.Wish != x.wish {
			t.Errorf("the wish is %s, want %s", now.Wish, x.wish)
		}
	}
	if err := i.c.Put(t.Context(), "nowhere-else", statestore.OwnedACL{Mirror: "nowhere-else", Binding: "x"}); err != nil {
		t.Errorf("all shards are ours: %v", err)
	}
}

// One destination has one group: another one waits for the first to be gone, and refuses to run if it lives.
func TestOtherGroupIsRefusedWhileTheFirstLives(t *testing.T) {
	b := newBench(t)
	one := b.start("one")
	one.owns(20*time.Second, all)
	other := b.start("other", func(d *Deps) {
		d.Config.GroupID, d.Config.SessionTimeout = "second", time.Second // it gives up after 7 s; it never joins
	})
	select {
	case err := <-other.ended:
		other.ended <- nil
		if err == nil || !strings.Contains(err.Error(), "mirrord-test") || !strings.Contains(err.Error(), "second") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("runs beside a living group")
	}
	one.stop()
	third := b.start("third", func(d *Deps) { d.Config.GroupID = "third" })
	third.owns(20*time.Second, all)
	if own, _ := third.store.View().Identity(); own.GroupID != "third" {
		t.Errorf("%+v", own)
	}
}

// A destination that is not ready yet fails nothing: the comparison is repeated.
func TestEffectsAreRepeatedBeforeTheyFail(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.breaks("align orders", errors.New("no leader yet"))
	i.command(mirror.Command{Verb: mirror.VerbCreate, Mirror: "east"})
	i.command(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"orders"}})
	i.found("east", 1, "orders")
	b.eventually(10*time.Second, func() string {
		if n, _ := i.called("align"); n < 3 {
			return fmt.Sprintf("aligned %d times", n)
		}
		return ""
	})
	i.breaks("align orders", nil)
	i.reach("east", 1, mirror.Mirroring, "orders")
	if n := b.log.count("state changed", "FAILED"); n > 0 {
		t.Errorf("%d times FAILED", n)
	}
}

// A topic that is copied anew is another one to the source: what is known of its former partitions goes, the positions at
// which they were stopped too, and nothing else does.
func TestRecordsOfAFormerSourceTopicAreRemoved(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 3, "orders", "payments")
	i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"orders"}})
	i.reach("east", 3, mirror.Stopped, "orders")
	view := i.store.View()
	again, _ := view.Topic("east", "orders")
	former := again.SourceID
	again.SourceID, again.DestinationID, again.Partitions = topicID("orders again"), topicID("copied again"), 2
	if err := i.c.Put(t.Context(), "east", again); err != nil {
		t.Fatal(err)
	}
	b.eventually(20*time.Second, func() string {
		for index := range int32(3) {
			p := mirror.Partition{Mirror: "east", TopicID: former, Index: index}
			_, state := view.Partition(p)
			if _, position := view.LastMirror(p); state || position {
				return fmt.Sprintf("orders-%d: a state %v, a last position %v", index, state, position)
			}
		}
		return ""
	})
	for index := range int32(2) {
		if _, ok := view.Partition(mirror.Partition{Mirror: "east", TopicID: again.SourceID, Index: index}); !ok {
			t.Errorf("orders-%d of the new topic is not known", index)
		}
	}
	i.reach("east", 3, mirror.Mirroring, "payments")
}

// A mirror whose source turns out to be the destination stands still with its partitions as they are, obeys a stop, and
// goes on by itself once that is corrected.
func TestARefusedMirrorStandsStill(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 1, "orders", "kept")
	epoch := i.state("east", "orders", 0).StateEpoch
	find := func(f statestore.Finding) {
		t.Helper()
		m, _ := i.store.View().Mirror("east")
		m.Finding = f
		if err := i.c.Put(t.Context(), "east", m); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(n int) {
		t.Helper()
		b.eventually(10*time.Second, func() string {
			if got := i.path.running(); got != n {
				return fmt.Sprintf("%d partitions run, want %d", got, n)
			}
			return ""
		})
	}
	runs(2)
	find(statestore.Finding{Kind: mirror.Loop, Message: "one and the same"})
	runs(0)
	i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"kept"}})
	i.reach("east", 1, mirror.Stopped, "kept")
	i.command(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"kept"}})
	i.ready("east", "kept")
	compared, _ := i.called("align")
	i.reach("east", 1, mirror.LogTruncation, "kept")
	find(statestore.Finding{})
	i.reach("east", 1, mirror.Mirroring, "kept")
	runs(2)
	if n, _ := i.called("align"); n != compared+1 {
		t.Errorf("logs were compared %d times, once is right", n-compared)
	}
	if s := i.state("east", "orders", 0); s.StateEpoch != epoch || s.State != mirror.Mirroring {
		t.Errorf("the state has moved: %+v, epoch %d before", s, epoch)
	}
}
