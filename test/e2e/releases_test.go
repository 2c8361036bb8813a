package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Sources back to the last line that knows ZooKeeper only, destinations back to the first whose KRaft is fit for use, and
// the last line that still runs on ZooKeeper, each in its newest release.
func TestReleases(t *testing.T) {
	t.Parallel()
	newest := SharedPair(t)
	old := startReleases(t, map[string]Options{
		"2.8.2": {}, "3.3.2": {Nodes: 2}, "3.9.1": {}, "3.9.1 on ZooKeeper": {Version: "3.9.1", ZooKeeper: true},
	})
	daemons := map[*Cluster]*Daemon{}
	for _, d := range []*Cluster{newest.D, old["3.3.2"], old["3.9.1"], old["3.9.1 on ZooKeeper"]} {
		m := NewDaemon(t, Settings{Source: newest.S.Bootstrap(), Destination: d.Bootstrap()})
		m.Launch()
		daemons[d] = m
	}
	t.Run("all", func(t *testing.T) {
		for _, c := range []struct {
			name         string
			source, dest *Cluster
			transactions string
			fences       bool
		}{
			{"2.8.2-to-4.3.1", old["2.8.2"], newest.D, "committed", false},
			{"3.9.1-to-4.3.1", old["3.9.1"], newest.D, "committed", false},
			{"4.3.1-to-3.3.2", newest.S, old["3.3.2"], "exact", true},
			{"4.3.1-to-3.9.1", newest.S, old["3.9.1"], "committed", false},
			{"3.9.1-to-3.9.1-on-ZooKeeper", old["3.9.1"], old["3.9.1 on ZooKeeper"], "committed", false},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := release{Pair{c.source, c.dest}, daemons[c.dest].In(t), c.name}
				r.basics(t, c.transactions, c.fences)
			})
		}
	})
}

// startReleases starts clusters of old releases, named by them where the options do not say which it is, all at once.
func startReleases(t *testing.T, all map[string]Options) map[string]*Cluster {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	started := map[string]*Cluster{}
	for name, o := range all {
		dir := t.TempDir()
		o.Version, o.Heap = cmpOr(o.Version, name), "384m"
		wg.Go(func() {
			c, err := NewCluster(dir, o)
			mu.Lock()
			defer mu.Unlock()
			if started[name] = c; err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, c := range started {
		if c != nil {
			t.Cleanup(c.Close)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return started
}

// release is a mirror between two releases; all its topics begin with its name.
type release struct {
	Pair
	m    *Daemon
	name string
}

func (r release) topic(kind string) string { return r.name + "." + kind }

// basics: records of all codecs, holes of the cleaner, transactions, settings and a group arrive; verify finds both sides
// equal; a stop promotes; the mirror goes.
func (r release) basics(t *testing.T, transactions string, fences bool) {
	plain, group := r.topic("plain"), r.topic("group")
	tellers, topics := r.past(t)
	r.S.Commit(t, group, plain, 1, 40)
	r.m.Do("create", "--mirror", r.name, "--mirror-config", propertiesFile(t, "bootstrap.servers="+r.S.Bootstrap(),
		"topics.include="+r.name+"\\..*", "groups.include="+r.name+"\\..*", "replication.factor=1"))
	AwaitLevel(t, r.S, r.D, soon, topics...)
	r.m.Do("pause", "--mirror", r.name, "--topics", ".*") // both sides are compared where the copy goes on
	r.everyCodec(t, plain, 1)
	must(t, together(tellers, (*teller).oldCodecs))
	r.m.Do("resume", "--mirror", r.name, "--topics", ".*")
	AwaitLevel(t, r.S, r.D, soon, topics...)
	Identical(t, r.S, r.D, plain, r.topic("holes"), r.topic("txns"))
	for _, topic := range topics {
		r.sameToKcat(t, topic)
	}
	must(t, r.m.wantLog("modes decided", "mirror="+r.name, "transactions="+transactions))
	Eventually(t, soon, func() error { return r.D.wantCommitted(group, plain, 1, 40) })
	r.verified(t, topics)
	r.stopped(t, plain, fences)
	r.m.Do("delete", "--mirror", r.name)
}

// past writes what is there before the mirror begins.
func (r release) past(t *testing.T) (tellers []*teller, topics []string) {
	t.Helper()
	plain, txns := r.topic("plain"), r.topic("txns")
	r.S.Topic(t, plain, 2, "retention.ms", "7200000", "max.message.bytes", "2000000")
	r.everyCodec(t, plain, 0)
	r.S.Topic(t, txns, 1)
	x := newTxns(t, r.S)
	for i := range 6 {
		x.run(t, txns, 0, i, i%3 != 1)
		r.S.Send(t, nil, Numbered(txns, 0, 100*i, 2)...)
	}
	tellers = []*teller{r.teller(t, "holes")}
	if strings.HasPrefix(r.S.Version, "2.") {
		tellers = append(tellers, r.teller(t, "magic-0", "message.format.version", "0.9.0"), r.teller(t, "magic-1", "message.format.version", "0.10.2"))
	}
	must(t, together(tellers, (*teller).churnAndSettle))
	for i, w := range tellers {
		topics = append(topics, w.topic)
		want(t, "message format of "+w.topic, r.S.magic(t, w.topic), []int8{2, 0, 1}[i])
	}
	return tellers, append(topics, plain, txns)
}

// stopped demands what a stop leaves behind: raised leader epochs where the destination can, the source's settings, a
// topic that others write to.
func (r release) stopped(t *testing.T, plain string, fences bool) {
	t.Helper()
	before, _, _ := r.D.epochs(t, plain)
	r.m.Do("stop", "--mirror", r.name, "--topics", ".*")
	after, _, _ := r.D.epochs(t, plain)
	for i := range after {
		if fences != (after[i] > before[i]) {
			t.Errorf("%s-%d: leader epoch %d became %d", plain, i, before[i], after[i])
		}
	}
	Eventually(t, soon, func() error { // a broker may tell of them later than the one that took them
		return r.D.wantSettings(plain, "retention.ms", "7200000", "max.message.bytes", "2000000")
	})
	must(t, writable(r.D, plain, 2))
}

// teller makes a compacted topic and is who writes to it.
func (r release) teller(t *testing.T, kind string, settings ...string) *teller {
	t.Helper()
	w := &teller{Tale: &Tale{Ingredient: Ingredient{kind, "settled"}}, c: r.S, topic: r.topic(kind), story: Story{Seed: 3}, clock: time.Now()}
	r.S.Topic(t, w.topic, 1, append(settings, "cleanup.policy", "compact", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.0001", "max.compaction.lag.ms", "1000", "delete.retention.ms", "0")...)
	t.Cleanup(w.end)
	return w
}

// churnAndSettle leaves holes. Topics of an old message format take all codecs that it knows, and none from idempotent
// producers; in magic 0 time is the broker's.
func (w *teller) churnAndSettle() error {
	if w.ID == "holes" {
		return errors.Join(w.churn(w.story.rand(w.topic)), w.churn(w.story.rand(w.topic)), w.settle())
	}
	for range 2 {
		if err := errors.Join(w.oldCodecs(), w.clean(nil)); err != nil {
			return err
		}
	}
	return errors.Join(w.settle(), w.oldCodecs())
}

func (w *teller) oldCodecs() error {
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression()} {
		cl, err := w.producer(w.story.rand("old"), kgo.ProducerBatchCompression(codec), kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
		if err != nil {
			return err
		}
		var records []*kgo.Record
		for n := range 20 {
			rec := &kgo.Record{Topic: w.topic, Key: fmt.Appendf(nil, "key %d", n*n%(7+i)), Timestamp: w.clock.Add(time.Duration(n) * time.Millisecond)}
			switch n % 6 { // 5: a tombstone
			case 4:
				rec.Value = []byte{}
			case 0, 1, 2, 3:
				rec.Value = fmt.Appendf(nil, "value %d", n)
			}
			records = append(records, rec)
		}
		if err := send(cl, records...); err != nil {
			return err
		}
	}
	return nil
}

// everyCodec writes records of all codecs with absent and empty parts.
func (r release) everyCodec(t *testing.T, topic string, partition int32) {
	t.Helper()
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		records := (&teller{topic: topic, clock: time.Now()}).nullsAndEmpties("word")
		for _, rec := range records {
			rec.Partition = partition
		}
		r.S.Send(t, []kgo.Opt{kgo.ProducerBatchCompression(codec)}, records...)
	}
}

// sameToKcat demands that librdkafka, which reads all that was ever written by old clients, is shown the same by both
// sides.
func (r release) sameToKcat(t *testing.T, topic string) {
	t.Helper()
	source, err := readKcat(r.S, topic, committed)
	must(t, err)
	if strings.HasSuffix(topic, "magic-0") { // has no time, which is shown as 0 where the format knows none
		source = strings.ReplaceAll(source, "\t0\t", "\t-1\t")
	}
	copied, err := readKcat(r.D, topic, committed)
	must(t, err)
	if diff := firstDifference(source, copied); diff != "" || len(source) == 0 {
		t.Errorf("%s: %s", topic, diff)
	}
}

// verified demands that mirrord itself compares all records and finds them equal.
func (r release) verified(t *testing.T, topics []string) {
	t.Helper()
	var rows []struct {
		Topic   string
		Records int64
		Equal   bool
		Detail  string
	}
	must(t, json.Unmarshal([]byte(r.m.Do("verify", "--config", r.m.ConfigFile(), "--mirror", r.name, "--full", "--json").Out), &rows))
	compared := map[string]int64{}
	for _, row := range rows {
		if compared[row.Topic] += row.Records; !row.Equal {
			t.Errorf("verify of %s: %s", row.Topic, row.Detail)
		}
	}
	for _, topic := range topics {
		if compared[topic] == 0 {
			t.Errorf("verify compared no record of %s", topic)
		}
	}
}
