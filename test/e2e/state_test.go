package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Setting is a topic's setting as it is in force.
func (c *Cluster) Setting(t testing.TB, topic, key string) string {
	t.Helper()
	described, err := c.adm.DescribeTopicConfigs(context.Background(), topic)
	must(t, err)
	for _, of := range described {
		must(t, of.Err)
		for _, s := range of.Configs {
			if s.Key == key {
				return s.MaybeValue()
			}
		}
	}
	return ""
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// The two record types of the design lie in the topic byte for byte as written there, each in the shard that its key
// hashes to; the reader below shares no code with the product.
func TestStateRecords(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 3)
	p.S.Send(t, nil, Numbered("t", 1, 0, 70)...)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	m.Await("MIRRORING", 20*time.Second, "t")
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
	m.Do("stop", "--mirror", "east", "--topics", "t")
	for key, value := range map[string]string{
		"cleanup.policy": "compact", "compression.type": "producer", "retention.ms": "-1",
		"unclean.leader.election.enable": "false",
	} {
		want(t, key, p.D.Setting(t, statestore.StateTopic, key), value)
	}
	source, err := p.S.Admin().ListTopics(context.Background(), "t")
	must(t, err)
	id := mirror.TopicID(source["t"].ID).String()
	states, positions := map[int32]designState{}, map[int32]designPosition{}
	for _, r := range SoundState(t, p.D) {
		key := kbin.Reader{Src: r.Key}
		kind := key.Int16()
		if kind != 1 && kind != 2 {
			continue
		}
		name, topic, partition := key.String(), mirror.TopicID(key.Uuid()).String(), key.Int32()
		must(t, key.Complete())
		want(t, "key", fmt.Sprint(name, topic), "east"+id)
		want(t, "shard", r.Shard, designShard(fmt.Sprintf("east:%s:%d", id, partition), 5))
		if kind == 1 {
			positions[partition] = readPosition(t, r.Value)
		} else {
			states[partition] = readState(t, r.Value)
		}
	}
	for i, end := range []int64{0, 70, 0} {
		s, last := states[int32(i)], positions[int32(i)]
		if s.name != "t" || s.partition != int32(i) || s.state != 6 || s.previous != 5 || s.attempt != 0 || s.epoch < 3 {
			t.Errorf("partition %d: %+v", i, s)
		}
		if last.offset != end || end > 0 && last.epoch < 0 {
			t.Errorf("partition %d: last mirrored %+v, want offset %d", i, last, end)
		}
	}
	dump := m.Do("state", "dump", "--json").Out
	if !json.Valid([]byte(dump)) || !strings.Contains(dump, id) {
		t.Errorf("state dump --json: %.300s", dump)
	}
}

type designState struct {
	name            string
	partition       int32
	state, previous int8
	attempt         int16
	message         string
	epoch, leader   int32
}

func readState(t *testing.T, value []byte) (s designState) {
	t.Helper()
	r := kbin.Reader{Src: value}
	want(t, "version", r.Int16(), 0)
	s.name, s.partition, s.state, s.previous, s.attempt = r.CompactString(), r.Int32(), r.Int8(), r.Int8(), r.Int16()
	tagged(t, &r, map[uint32]func(*kbin.Reader){
		0: func(r *kbin.Reader) { s.message = r.CompactString() },
		1: func(r *kbin.Reader) { s.epoch = r.Int32() },
		2: func(r *kbin.Reader) { s.leader = r.Int32() },
	})
	return s
}

type designPosition struct {
	epoch  int32
	offset int64
}

func readPosition(t *testing.T, value []byte) (p designPosition) {
	t.Helper()
	r := kbin.Reader{Src: value}
	want(t, "version", r.Int16(), 0)
	p.epoch, p.offset = r.Int32(), -1
	tagged(t, &r, map[uint32]func(*kbin.Reader){0: func(r *kbin.Reader) { p.offset = r.Int64() }})
	return p
}

func tagged(t *testing.T, r *kbin.Reader, fields map[uint32]func(*kbin.Reader)) {
	t.Helper()
	for range r.Uvarint() {
		tag, size := r.Uvarint(), r.Uvarint()
		field := kbin.Reader{Src: r.Span(int(size))}
		if read := fields[tag]; read != nil {
			read(&field)
			must(t, field.Complete())
		}
	}
	must(t, r.Complete())
}

func designShard(key string, shards int32) int32 {
	var h int32
	for _, c := range key {
		h = h*31 + c
	}
	return max(h, -h) % shards
}

// The state topic is deleted under a running instance: it is created again with all that was known, so what was paused
// stays paused and what was stopped stays stopped, also for the next process.
func TestStateTopicLost(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	topics := []string{"mirrored", "paused", "stopped"}
	for _, topic := range topics {
		p.S.Topic(t, topic, 2)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 50)...)
	}
	m := NewDaemon(t, p.Mirror(topics...))
	m.Start()
	m.Await("MIRRORING", 20*time.Second, topics...)
	AwaitLevel(t, p.S, p.D, 20*time.Second, topics...)
	m.Do("pause", "--mirror", "east", "--topics", "paused")
	m.Do("stop", "--mirror", "east", "--topics", "stopped")
	_, err := p.D.Admin().DeleteTopics(context.Background(), statestore.StateTopic)
	must(t, err)
	for range 3 { // while it is being put back, nobody hears that there is nothing
		says(t, "list", m.Do("list").Out, "east", "MIRRORING 2, PAUSED 2, STOPPED 2")
	}
	m.Do("pause", "--mirror", "east", "--topics", "paused")
	for _, topic := range topics {
		p.S.Send(t, nil, Numbered(topic, 0, 50, 50)...)
	}
	check := func() {
		t.Helper()
		AwaitLevel(t, p.S, p.D, 30*time.Second, "mirrored")
		m.Await("MIRRORING", 20*time.Second, "mirrored")
		m.Await("PAUSED", 20*time.Second, "paused")
		m.Await("STOPPED", 20*time.Second, "stopped")
		want(t, "cleanup.policy", p.D.Setting(t, statestore.StateTopic, "cleanup.policy"), "compact")
		for _, topic := range topics[1:] {
			logs, err := p.D.Logs(context.Background(), topic)
			must(t, err)
			want(t, "log end of "+topic, logs[0].End, 50)
		}
	}
	check()
	m.Kill()
	m.Start()
	check()
	if !strings.Contains(m.Log(), "state topic was missing, created it again") {
		t.Error("the log does not tell of the missing topic")
	}
	m.Do("resume", "--mirror", "east", "--topics", "paused")
	AwaitLevel(t, p.S, p.D, 20*time.Second, "paused")
	Identical(t, p.S, p.D, "mirrored", "paused")
}

// The state topic is gone when nobody runs who knows what it held: topics that hold data come back PAUSED and say so;
// those that hold none are simply mirrored.
func TestStateTopicRecreatedEmpty(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	for _, topic := range []string{"full", "fresh"} {
		p.S.Topic(t, topic, 1)
	}
	p.S.Send(t, nil, Numbered("full", 0, 0, 50)...)
	s := p.Mirror("full")
	m := NewDaemon(t, s)
	m.Start()
	AwaitLevel(t, p.S, p.D, 20*time.Second, "full")
	m.Stop()
	_, err := p.D.Admin().DeleteTopics(context.Background(), statestore.StateTopic)
	must(t, err)
	p.S.Send(t, nil, Numbered("full", 0, 50, 50)...)
	p.S.Send(t, nil, Numbered("fresh", 0, 0, 50)...)
	s.Topics = append(s.Topics, "fresh")
	m.Write(s)
	m.Start()
	m.Await("PAUSED", 20*time.Second, "full")
	AwaitLevel(t, p.S, p.D, 20*time.Second, "fresh")
	logs, err := p.D.Logs(context.Background(), "full")
	must(t, err)
	want(t, "log end of full", logs[0].End, 50)
	if !strings.Contains(m.Do("describe").Out+m.Log(), "state topic") {
		t.Errorf("nothing says why the topic is paused:\n%s", m.Do("describe").Out)
	}
	m.Do("resume", "--mirror", "east", "--topics", "full")
	AwaitLevel(t, p.S, p.D, 20*time.Second, "full")
	Identical(t, p.S, p.D, "full", "fresh")
}

// A state topic made by hand with a policy that loses state is corrected and told; its partition count is used as found.
func TestStateTopicWithAnotherPolicy(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 4)
	p.D.Topic(t, statestore.StateTopic, 3, "cleanup.policy", "delete", "retention.ms", "60000")
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	m.Await("MIRRORING", 20*time.Second, "t")
	want(t, "cleanup.policy", p.D.Setting(t, statestore.StateTopic, "cleanup.policy"), "compact")
	want(t, "retention.ms", p.D.Setting(t, statestore.StateTopic, "retention.ms"), "-1")
	for _, text := range []string{"cleanup.policy", "delete", "found=3", "configured=5"} {
		if !strings.Contains(m.Log(), text) {
			t.Errorf("the log does not say %q", text)
		}
	}
}

// A record that cannot be read stops its shard, which says so everywhere, and no other; a record of an unknown type is
// skipped and counted.
func TestStateTopicWithForeignRecords(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 12)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	m.Await("MIRRORING", 20*time.Second, "t")
	source, err := p.S.Admin().ListTopics(context.Background(), "t")
	must(t, err)
	shards := map[int32]int32{}
	for i := range int32(12) {
		shards[i] = mirror.ShardOf(mirror.Partition{Mirror: "east", TopicID: mirror.TopicID(source["t"].ID), Index: i}, 5)
	}
	bad := (mirror.ShardOfMirror("east", 5) + 1) % 5
	stranger := func(shard int32, key, value []byte) {
		p.D.Send(t, nil, &kgo.Record{Topic: statestore.StateTopic, Partition: shard, Key: key, Value: value})
	}
	stranger(bad, []byte{0x7f, 0xff, 1, 2, 3}, []byte{0, 0})
	Eventually(t, 10*time.Second, func() error {
		if m.Metric("mirrord_state_unknown_records_total") != 1 {
			return fmt.Errorf("the unknown record is not counted")
		}
		return nil
	})
	stranger(bad, []byte{0, 2, 0, 200}, []byte{0, 0, 1})
	Eventually(t, 10*time.Second, func() error {
		var ready strings.Builder
		if err := m.get("/readyz", &ready); err != nil || !strings.Contains(ready.String(), fmt.Sprintf("shard %d", bad)) {
			return fmt.Errorf("/readyz says nothing of shard %d: %s (%w)", bad, ready.String(), err)
		}
		return nil
	})
	want(t, "stopped shards", m.Metric("mirrord_state_stopped_shards"), 1)
	if r := m.Do("describe"); !strings.Contains(r.Out+r.Err, fmt.Sprintf("shard %d", bad)) {
		t.Errorf("describe says nothing of shard %d: %s%s", bad, r.Out, r.Err)
	}
	for i := range int32(12) {
		p.S.Send(t, nil, Numbered("t", i, 0, 20)...)
	}
	Eventually(t, 20*time.Second, func() error {
		logs, err := p.D.Logs(context.Background(), "t")
		for i, shard := range shards {
			if shard != bad && err == nil && logs[i].End != 20 {
				err = fmt.Errorf("partition %d of shard %d is at %d", i, shard, logs[i].End)
			}
		}
		return err
	})
}
