package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// says demands words in what a command printed.
func says(t *testing.T, what, printed string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(printed, w) {
			t.Errorf("%s does not say %q:\n%s", what, w, printed)
		}
	}
}

// A source that has died is when an operator asks what a failover would lose: plan says what was last reported, after the
// failover describe says what the source had, and the same is seen over HTTP.
func TestLossIsToldWithoutTheSource(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 2)
	p.S.Send(t, nil, Numbered("t", 0, 0, 100)...)
	m := NewDaemon(t, p.Proxied("t"))
	m.Start()
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
	m.Do("pause", "--mirror", "east", "--topics", "t")
	p.S.Send(t, nil, Numbered("t", 0, 100, 70)...)
	awaitRow(t, m, "t", 0, 20*time.Second, func(r Partition) bool { return r.Lag == 70 && r.LagSeconds > 0 })
	p.S.Nodes[0].Proxy.Cut()

	r := m.run("plan", "--config", m.ConfigFile(), "--mirror", "east")
	want(t, "exit code of plan", r.Code, 4)
	says(t, "plan", r.Out, "as last reported", "t-0", "70 records")
	if strings.Contains(r.Out, "t-1") {
		t.Errorf("plan names a partition that is level: %s", r.Out)
	}

	m.Do("stop", "--mirror", "east", "--topics", "t")
	must(t, writable(p.D, "t", 1))
	m.Stop()
	m.Start() // what was reported outlives the process
	row, err := m.Partition("t", 0)
	must(t, err)
	if row.SourceOffset != 170 || row.DestinationOffset != 101 || row.LastMirrorOffset != 100 || row.Lag != -1 {
		t.Errorf("after the failover: %+v", row)
	}
	var rows []Partition
	var body bytes.Buffer
	must(t, m.get("/api/v1/mirrors/east/partitions?state=stopped&topic=t", &body))
	must(t, json.Unmarshal(body.Bytes(), &rows))
	if len(rows) != 2 || rows[0] != row {
		t.Errorf("over HTTP: %+v, by describe: %+v", rows, row)
	}
}

// The dry run of a start asks the source, and says so where it cannot.
func TestDryRunOfAStart(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	for _, topic := range []string{"orders", "payments", "paused"} {
		p.S.Topic(t, topic, 1)
	}
	set := p.Mirror("paused")
	m := NewDaemon(t, set)
	m.Start()
	m.Await("MIRRORING", 20*time.Second, "paused")
	m.Do("pause", "--mirror", "east", "--topics", "paused")
	dry := func() Result {
		return m.Run("start", "--mirror", "east", "--topics", "orders,pay.*,absent,none.+,paused", "--exclude", "orders", "--dry-run", "--config", m.ConfigFile())
	}
	r := dry()
	want(t, "exit code", r.Code, 1)
	says(t, "the dry run", r.Out, "payments: would be mirrored", "none.+: no topic of the source matches yet")
	says(t, "the dry run", r.Err, "the source has no topic absent", "paused: is paused: resume it")
	if strings.Contains(r.Out, "orders") {
		t.Errorf("an excluded topic is named: %s", r.Out)
	}
	for _, row := range m.Describe() {
		want(t, "topic after a dry run", row.Topic, "paused")
	}
	set.Source = freeAddr()
	m.Write(set)
	r = dry()
	says(t, "the dry run", r.Out+r.Err, "the source was not asked", "none.+: would be resolved on the source")
}

// What to do about a record of the state topic that cannot be read is told wherever it is told, and doing it helps: all
// other state is there again, and the shard goes on.
func TestUnreadableStateRecordHasARemedy(t *testing.T) {
	t.Parallel()
	const partitions = 12
	p := SharedPair(t)
	p.S.Topic(t, "t", partitions)
	p.S.Topic(t, "paused", 1)
	set := p.Mirror("t", "paused")
	m := NewDaemon(t, set)
	m.Start()
	m.Await("MIRRORING", 20*time.Second, "t", "paused")
	m.Do("pause", "--mirror", "east", "--topics", "paused")
	bad := mirror.ShardOfMirror("east", 5) // commands of the mirror wait, too
	p.D.Send(t, nil, &kgo.Record{Topic: statestore.StateTopic, Partition: bad, Key: []byte{0, 2, 0, 200}, Value: []byte{0, 0, 1}})
	Eventually(t, 10*time.Second, func() error {
		if n := m.Metric("mirrord_state_stopped_shards"); n != 1 {
			return fmt.Errorf("%v shards are stopped", n)
		}
		return nil
	})
	m.Kill() // the next process finds it there
	m.Launch()
	remedy := "delete the topic __mirror_state while an instance runs"
	var ready bytes.Buffer
	Eventually(t, 20*time.Second, func() error {
		ready.Reset()
		_ = m.get("/readyz", &ready)
		if !strings.Contains(ready.String(), remedy) {
			return fmt.Errorf("/readyz says %s", ready.String())
		}
		return nil
	})
	r := m.Run("describe")
	says(t, "describe", r.Err, fmt.Sprintf("shard %d stopped at offset", bad), remedy)
	says(t, "check", m.check().Out, fmt.Sprintf("shard %d stopped at offset", bad), remedy)

	_, err := p.D.Admin().DeleteTopics(context.Background(), statestore.StateTopic)
	must(t, err)
	Eventually(t, 40*time.Second, func() error {
		if n := m.Metric("mirrord_state_stopped_shards"); n != 0 {
			return fmt.Errorf("%v shards are stopped", n)
		}
		return m.get("/readyz", &ready)
	})
	m.Await("PAUSED", 20*time.Second, "paused")
	m.Do("resume", "--mirror", "east", "--topics", "paused")
	for i := range int32(partitions) {
		p.S.Send(t, nil, Numbered("t", i, 0, 20)...)
	}
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t", "paused")
	Identical(t, p.S, p.D, "t")
}
