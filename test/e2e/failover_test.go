package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// promoted demands of stopped topics that what was mirrored is a prefix of the source, that the recorded position is its
// end, and that somebody else can write now.
func promoted(t *testing.T, p Pair, m *Daemon, topics ...string) {
	t.Helper()
	rows := map[string]map[int32]Partition{}
	for _, row := range m.Describe() {
		if rows[row.Topic] == nil {
			rows[row.Topic] = map[int32]Partition{}
		}
		rows[row.Topic][row.Partition] = row
	}
	for _, topic := range topics {
		source, err := p.S.Logs(context.Background(), topic)
		must(t, err)
		copied, err := p.D.Logs(context.Background(), topic)
		must(t, err)
		for i, log := range source {
			row, end := rows[topic][i], copied[i].End
			if row.State != "STOPPED" || row.LastMirrorOffset > end || end > 0 && row.LastMirrorEpoch < 0 || row.LastMirrorOffset > log.End {
				t.Errorf("%s-%d ends at %d, at the source at %d: %+v", topic, i, end, log.End, row)
				continue
			}
			must(t, samePrefix(p.S, p.D, topic, i, copied[i].Start, row.LastMirrorOffset))
			if rest := visible(t, p.D, topic, i, row.LastMirrorOffset, end); rest > 0 {
				t.Errorf("%s-%d: %d records lie behind the last mirrored offset %d", topic, i, rest, row.LastMirrorOffset)
			}
		}
		must(t, writable(p.D, topic, int32(len(source))))
	}
}

// samePrefix compares what a read_committed consumer gets below an offset.
func samePrefix(s, d *Cluster, topic string, p int32, start, end int64) error {
	return identical(s, d, topic, p, Log{start, end, end})
}

func visible(t *testing.T, c *Cluster, topic string, p int32, from, to int64) (n int) {
	t.Helper()
	for r := newReader(c, topic, p, Log{from, to, to}); ; n++ {
		rec, err := r.next()
		must(t, err)
		if rec == nil {
			return n
		}
	}
}

func writable(c *Cluster, topic string, partitions int32) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer cl.Close()
	var records []*kgo.Record
	for i := range partitions {
		records = append(records, Numbered(topic, i, 1_000_000, 1)...)
	}
	if err := cl.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		return fmt.Errorf("%s is not writable: %w", topic, err)
	}
	return nil
}

// The daemon is killed again and again while it promotes, transactions open among it: whatever step it had reached, the
// next one brings all topics to STOPPED, with the position recorded once, no transaction left open, and others can write.
func TestR19_StopAcrossCrashes(t *testing.T) {
	t.Parallel()
	rounds, partitions := 3, int32(16)
	if os.Getenv("MIRRORD_STORM") != "" {
		rounds = 60
	}
	p := SharedPair(t)
	p.D.SetBrokers(t, verification, "false")
	s := p.Mirror()
	s.Topics, s.Extra = nil, []string{"instance_id: one"}
	m := NewDaemon(t, s)
	m.Start()
	for round := range rounds {
		topic, open := fmt.Sprint("t", round), fmt.Sprint("open", round)
		p.S.Topic(t, topic, partitions)
		p.S.Topic(t, open, 2)
		x := newTxns(t, p.S)
		must(t, x.cl.BeginTransaction())
		must(t, x.cl.ProduceSync(context.Background(), append(Numbered(open, 0, 0, 5), Numbered(open, 1, 0, 5)...)...).FirstErr())
		load := StartLoad(t, p.S, 1000, partitions, topic)
		m.Do("start", "--mirror", "east", "--topics", topic+","+open)
		progress(t, p, topic, partitions, 20*time.Second)
		AwaitLevel(t, p.S, p.D, 20*time.Second, open)
		epochsKnown(t, p, topic, open)
		m.Do("stop", "--mirror", "east", "--topics", topic+","+open, "--no-wait")
		for range 1 + rand.IntN(3) {
			time.Sleep(rand.N(250 * time.Millisecond))
			m.Kill()
			m.Launch()
			time.Sleep(rand.N(900 * time.Millisecond))
		}
		m.Await("STOPPED", 30*time.Second, topic, open)
		load.Stop(t)
		must(t, x.cl.EndTransaction(context.Background(), kgo.TryAbort))
		promoted(t, p, m, topic, open)
		logs, err := p.D.Logs(context.Background(), open)
		must(t, err)
		for i, log := range logs {
			want(t, fmt.Sprintf("last stable offset of %s-%d", open, i), log.Stable, log.End)
		}
	}
	positions := map[string]int64{}
	for _, r := range SoundState(t, p.D) {
		if l, ok := r.Record.(statestore.LastMirrorEpoch); ok {
			if at, known := positions[l.Partition.String()]; known && at != l.Position.Offset {
				t.Errorf("%s: the last mirrored position was %d and is %d", l.Partition, at, l.Position.Offset)
			}
			positions[l.Partition.String()] = l.Position.Offset
		}
	}
}

// epochsKnown waits until the source's leader epochs are recorded, as they are a moment after a partition is begun: what a
// daemon knows that dies before, nobody knows.
func epochsKnown(t *testing.T, p Pair, topics ...string) {
	t.Helper()
	wanted := map[mirror.Partition]bool{}
	for _, topic := range topics {
		n, err := p.S.Partitions(context.Background(), topic)
		must(t, err)
		for i := range int32(n) {
			wanted[mirror.Partition{Mirror: "east", TopicID: mirror.TopicID(p.S.TopicID(t, topic)), Index: i}] = true
		}
	}
	Eventually(t, 20*time.Second, func() error {
		missing := len(wanted)
		seen := map[mirror.Partition]bool{}
		for _, r := range StateLog(t, p.D) {
			if e, ok := r.Record.(statestore.SourceEpochs); ok && wanted[e.Partition] && !seen[e.Partition] {
				seen[e.Partition] = true
				missing--
			}
		}
		if missing > 0 {
			return fmt.Errorf("the source's leader epoch is not recorded of %d partitions", missing)
		}
		return nil
	})
}

// The source does not answer any more, and the daemon is restarted on top; some partitions have FAILED, some are PAUSED,
// one is being seeded, one waits for a topic to come: a stop promotes all within ten seconds.
func TestStopWithoutSource(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	topics := []string{"mirrored", "paused", "failed", "diverged", "seeding"}
	for _, topic := range topics {
		p.S.Topic(t, topic, 4)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 100)...)
	}
	p.S.trim(t, "seeding", 0, 60)
	p.D.Topic(t, "diverged", 4)
	p.D.Send(t, nil, Numbered("diverged", 0, 7, 3)...)
	m := NewDaemon(t, p.Proxied("mirrored", "paused", "failed", "diverged"))
	m.Start()
	AwaitLevel(t, p.S, p.D, 20*time.Second, "mirrored", "paused", "failed")
	awaitRow(t, m, "diverged", 0, 20*time.Second, func(r Partition) bool { return r.State == "FAILED" && r.RetryAttempt == -1 })
	m.Do("pause", "--mirror", "east", "--topics", "paused")
	p.D.Nodes[0].Proxy.HoldSome(keyProduce, ofData)
	m.Do("start", "--mirror", "east", "--topics", "seeding", "--no-wait")
	m.Await("MIRRORING", 10*time.Second, "seeding")
	Eventually(t, 10*time.Second, func() error {
		if p.D.Nodes[0].Proxy.Held() == 0 {
			return fmt.Errorf("nothing is being seeded")
		}
		return nil
	})
	p.S.Nodes[0].Proxy.BlackHole()
	p.D.Nodes[0].Proxy.Heal()
	s := stage{t: t, m: m, p: p, from: map[mirror.State]int{}}
	s.mustSet(mirror.Failed, "failed")
	time.Sleep(time.Second)
	m.Kill()
	m.Start()
	r := m.Do("stop", "--mirror", "east", "--topics", ".*")
	t.Logf("stop without a source took %v", r.Took)
	if r.Took > Unhurried(10*time.Second) {
		t.Errorf("it took %v", r.Took)
	}
	m.Await("STOPPED", time.Second, topics...)
	p.S.Nodes[0].Proxy.Heal()
	promoted(t, p, m, "mirrored", "paused", "failed")
	must(t, writable(p.D, "seeding", 4))
	if logs, err := p.D.Logs(context.Background(), "seeding"); err != nil || visibleFillers(t, p.D, "seeding", logs[0]) > 0 {
		t.Errorf("a consumer finds fillers in what was being seeded: %v %v", logs, err)
	}
	SoundState(t, p.D)
}

// visibleFillers counts records that are not those of the source.
func visibleFillers(t *testing.T, c *Cluster, topic string, log Log) (n int) {
	t.Helper()
	for r := newReader(c, topic, 0, log); ; {
		rec, err := r.next()
		must(t, err)
		if rec == nil {
			return n
		}
		if !strings.HasPrefix(string(rec.Key), "k") {
			n++
		}
	}
}

// A planned switch-over waits until nothing is missing, and promotes nothing where that is not reached in time.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 4)
	p.S.Topic(t, "busy", 4)
	m := NewDaemon(t, p.Proxied("t", "busy"))
	m.Start()
	m.Await("MIRRORING", 20*time.Second, "t", "busy")
	proxy := p.D.Nodes[0].Proxy
	proxy.HoldSome(keyProduce, ofData) // nothing gets through for a while
	p.S.Send(t, nil, append(Numbered("t", 0, 0, 1000), Numbered("busy", 0, 0, 1000)...)...)
	var wg sync.WaitGroup
	var reached Result
	wg.Go(func() { reached = m.Run("stop", "--mirror", "east", "--topics", "t", "--drain", "--timeout", "30s") })
	r := m.Run("stop", "--mirror", "east", "--topics", "busy", "--drain", "--timeout", "3s")
	if r.Code != 1 && r.Code != 3 || !strings.Contains(r.Err, "not level in time") {
		t.Errorf("exit code %d, %s%s", r.Code, r.Out, r.Err)
	}
	for _, row := range m.Describe() {
		want(t, row.Topic+" while it is drained", row.State, "MIRRORING")
	}
	proxy.Heal()
	wg.Wait()
	if reached.Code != 0 {
		t.Errorf("drain of t: exit code %d, %s%s", reached.Code, reached.Out, reached.Err)
	}
	want(t, "lag of t", Level(context.Background(), p.S, p.D, "t"), nil)
	m.Await("STOPPED", time.Second, "t")
	p.S.Send(t, nil, Numbered("busy", 1, 0, 10)...) // it goes on
	AwaitLevel(t, p.S, p.D, 20*time.Second, "busy")
	promoted(t, p, m, "t")

	p.S.Nodes[0].Proxy.BlackHole() // no source: it cannot be known that nothing is missing
	r = m.Run("stop", "--mirror", "east", "--topics", "busy", "--drain", "--timeout", "3s")
	if r.Code == 0 || r.Took > Unhurried(20*time.Second) {
		t.Errorf("drain without a source: exit code %d after %v, %s%s", r.Code, r.Took, r.Out, r.Err)
	}
	for _, row := range m.Describe() {
		if row.Topic == "busy" && row.State != "MIRRORING" && !strings.Contains(row.ErrorMessage, "answer") && row.State != "FAILED" {
			t.Errorf("after the drain: %+v", row)
		}
	}
	answeredOnce(t, p.D, 10*time.Second)
}

// plan says what a stop would lose now: records, open transactions, group offsets; nothing is changed by asking.
func TestPlanTellsWhatAStopLoses(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 2)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	p.S.Send(t, nil, Numbered("t", 0, 0, 100)...)
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
	m.Do("pause", "--mirror", "east", "--topics", "t")
	p.S.Send(t, nil, Numbered("t", 0, 100, 250)...)
	p.S.Commit(t, "g", "t", 0, 300)
	m.cli = p.D.Bootstrap()
	r := m.Do("plan", "--mirror", "east", "--json")
	var plan struct {
		Loss []struct {
			Topic            string
			Records          int64
			OpenTransactions int
		}
		Groups []struct {
			Group, Status                   string
			SourceOffset, DestinationOffset int64
		}
	}
	must(t, json.Unmarshal([]byte(r.Out), &plan))
	if len(plan.Loss) != 1 || plan.Loss[0].Records != 250 {
		t.Errorf("records: %+v", plan.Loss)
	}
	if len(plan.Groups) != 1 || plan.Groups[0].Group != "g" || plan.Groups[0].Status != "clamped" || plan.Groups[0].SourceOffset != 300 {
		t.Errorf("groups: %+v", plan.Groups)
	}
	for _, text := range []string{"250 records", "g"} {
		if out := m.Do("plan", "--mirror", "east").Out; !strings.Contains(out, text) {
			t.Errorf("plan does not say %q:\n%s", text, out)
		}
	}
	if at, err := p.D.Committed("g", "t", 0); err == nil && at.At > 0 {
		t.Errorf("asking for the plan has committed %+v", at)
	}
	m.Await("PAUSED", time.Second, "t")
}

// Each failure that waiting cannot heal is told with its reason, tried no more, and leaves the others alone; it obeys
// pause and stop, and a recover heals those that can be.
func TestFailuresThatWait(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	topics := []string{"diverged", "longer", "source-gone", "source-again", "gone", "again", "foreign"}
	at := time.Now()
	stamped := func(records []*kgo.Record) []*kgo.Record {
		for _, r := range records {
			r.Timestamp = at
		}
		return records
	}
	for _, topic := range append(topics, "healthy") {
		p.S.Topic(t, topic, 2)
		p.S.Send(t, nil, stamped(append(Numbered(topic, 0, 0, 50), Numbered(topic, 1, 0, 50)...))...)
	}
	for _, topic := range []string{"diverged", "longer"} {
		p.D.Topic(t, topic, 2)
	}
	p.D.Send(t, nil, stamped(Numbered("diverged", 0, 1, 20))...)
	p.D.Send(t, nil, stamped(Numbered("longer", 1, 0, 60))...)
	m := NewDaemon(t, p.Mirror(append(topics, "healthy")...))
	m.Start()
	AwaitLevel(t, p.S, p.D, 30*time.Second, "healthy", "source-gone", "source-again", "gone", "again", "foreign")
	p.S.DeleteTopic(t, "source-gone")
	p.S.DeleteTopic(t, "source-again")
	p.S.Topic(t, "source-again", 2)
	p.D.DeleteTopic(t, "gone")
	p.D.DeleteTopic(t, "again")
	p.D.Topic(t, "again", 2)
	p.D.Send(t, nil, Numbered("foreign", 1, 999, 1)...)

	for topic, say := range map[string][]string{
		"diverged": {"offset 0", "20", "--reseed"}, "longer": {"50", "10", "--reseed"}, "source-gone": {"deleted"}, "source-again": {"created again", "--reseed"},
		"gone": {"deleted", "recover"}, "again": {"created again", "recover"}, "foreign": {"50"},
	} {
		row := awaitRow(t, m, topic, map[string]int32{"longer": 1, "foreign": 1}[topic], 20*time.Second, func(r Partition) bool {
			return r.State == "FAILED" && r.RetryAttempt == -1
		})
		t.Logf("%s: %s", topic, row.ErrorMessage)
		for _, text := range say {
			if !strings.Contains(row.ErrorMessage, text) {
				t.Errorf("%s: the message does not say %q: %s", topic, text, row.ErrorMessage)
			}
		}
	}
	for _, x := range []struct {
		topic string
		p     int32
	}{{"diverged", 1}, {"longer", 0}, {"foreign", 0}} {
		awaitRow(t, m, x.topic, x.p, 10*time.Second, func(r Partition) bool { return r.State == "MIRRORING" && r.Lag == 0 })
	}
	p.S.Send(t, nil, Numbered("healthy", 0, 50, 10)...)
	AwaitLevel(t, p.S, p.D, 10*time.Second, "healthy")
	m.Do("pause", "--mirror", "east", "--topics", "longer")
	m.Do("stop", "--mirror", "east", "--topics", "diverged,source-gone")
	m.Do("recover", "--mirror", "east", "--topics", "gone")
	m.Do("recover", "--mirror", "east", "--topics", "again")
	r := m.Do("recover", "--mirror", "east", "--topics", "foreign,source-again", "--reseed")
	t.Log(r.Out)
	AwaitLevel(t, p.S, p.D, 30*time.Second, "gone", "again", "foreign", "source-again")
	Identical(t, p.S, p.D, "gone", "again", "foreign", "source-again")
	m.Await("PAUSED", time.Second, "longer")
	m.Await("STOPPED", time.Second, "diverged", "source-gone")
	SoundState(t, p.D)
}

// A source that does not answer is tried for ever, uses up no attempt and floods nothing; the moment it is back, all goes
// on.
func TestUnreachableSourceUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 8)
	s := p.Proxied("t")
	s.Retry = "initial_backoff: 50ms, max_backoff: 200ms, max_attempts: 2"
	m := NewDaemon(t, s)
	m.Start()
	m.Await("MIRRORING", 20*time.Second, "t")
	stage := stage{t: t, m: m, p: p, from: map[mirror.State]int{}}
	p.S.Nodes[0].Proxy.Cut()
	stage.mustSet(mirror.Failed, "t") // partition 0 has to compare again, which it cannot
	stage.mustSet(mirror.LogTruncation, "t")
	lines := strings.Count(m.Log(), "\n")
	time.Sleep(6 * time.Second)
	for _, row := range m.Describe() {
		if row.RetryAttempt < 0 || row.RetryAttempt > 1 {
			t.Errorf("%+v", row)
		}
	}
	if grown := strings.Count(m.Log(), "\n") - lines; grown > 30 {
		t.Errorf("%d lines were logged in six seconds of an outage", grown)
	}
	p.S.Nodes[0].Proxy.Heal()
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	AwaitLevel(t, p.S, p.D, 10*time.Second, "t")
	m.Await("MIRRORING", 10*time.Second, "t")
	SoundState(t, p.D)
}

// Both directions at once would go in a circle: the second one is refused, and becomes possible by stopping the first,
// which is a failback. What both sides share is not copied again.
func TestMirrorLoopRefusedAndFailback(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 3)
	there := NewDaemon(t, p.Mirror("t"))
	there.Start()
	p.S.Send(t, nil, Numbered("t", 0, 0, 500)...)
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
	back := NewDaemon(t, Pair{p.D, p.S}.Mirror("t"))
	back.Start()
	row := awaitRow(t, back, "t", 0, 20*time.Second, func(r Partition) bool { return r.State == "FAILED" })
	want(t, "attempt", row.RetryAttempt, -1)
	if !strings.Contains(row.ErrorMessage, "circle") || !strings.Contains(row.ErrorMessage, "mirrord stop --mirror east") {
		t.Errorf("message: %s", row.ErrorMessage)
	}
	p.S.Send(t, nil, Numbered("t", 1, 0, 500)...)
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
	there.Do("stop", "--mirror", "east", "--topics", "t", "--drain")
	back.Do("start", "--mirror", "east", "--topics", "t")
	p.D.Send(t, nil, Numbered("t", 2, 0, 500)...)
	AwaitLevel(t, p.D, p.S, 20*time.Second, "t")
	Identical(t, p.D, p.S, "t")
	want(t, "records copied back", back.Metric("mirrord_produced_records_total", `topic="t"`), 500)
	back.Do("stop", "--mirror", "east", "--topics", "t", "--drain")
	there.Do("start", "--mirror", "east", "--topics", "t")
	p.S.Send(t, nil, Numbered("t", 0, 500, 10)...)
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
	Identical(t, p.S, p.D, "t")
	SoundState(t, p.D)
	SoundState(t, p.S)
}
