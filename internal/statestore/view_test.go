package statestore

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"mirrord/internal/mirror"
)

// records turns Records into what a fetch gives, from an offset on.
func fetchedRecords(from int64, rs ...Record) (out []*kgo.Record) {
	for i, r := range rs {
		out = append(out, &kgo.Record{Key: r.key(), Value: r.value(), Offset: from + int64(i)})
	}
	return out
}

// TestViewIsTheLastRecordPerKey: whatever is written in whatever order, the view shows the last record of each key, and
// the indexes agree with the records.
func TestViewIsTheLastRecordPerKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3
		v, want, next := NewView(n), map[mirror.Partition]PartitionState{}, map[int32]int64{}
		for range rapid.IntRange(0, 60).Draw(t, "writes") {
			s := state(rapid.Int32Range(0, 5).Draw(t, "partition"), rapid.SampledFrom(mirror.States()).Draw(t, "state"))
			var r Record = s
			if want[s.Partition] = s; rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
				r = Tombstone{s}
				delete(want, s.Partition)
			}
			shard := s.Shard(n)
			next[shard]++
			v.apply(shard, fetchedRecords(next[shard]-1, r), next[shard])
		}
		shown := 0
		for shard := range int32(n) {
			for _, s := range v.PartitionsOfShard(shard) {
				shown++
				if got, ok := v.Partition(s.Partition); !ok || got != s || want[s.Partition] != s {
					t.Fatalf("%v: record %+v, indexed %+v, want %+v", s.Partition, s, got, want[s.Partition])
				}
			}
		}
		if shown != len(want) || len(v.Partitions("east")) != len(want) {
			t.Fatalf("%d records, %d indexed, want %d", shown, len(v.Partitions("east")), len(want))
		}
	})
}

// TestRecordInItsOwnShardWins: after the number of partitions was changed, old records lie in other shards than new ones.
func TestRecordInItsOwnShardWins(t *testing.T) {
	own, old := state(0, mirror.Stopped), state(0, mirror.Mirroring)
	home := own.Shard(5)
	away := (home + 1) % 5
	for name, order := range map[string][]int32{"home first": {home, away}, "home last": {away, home}} {
		v := NewView(5)
		for _, shard := range order {
			r := own
			if shard == away {
				r = old
			}
			v.apply(shard, fetchedRecords(0, r), 1)
		}
		if got, ok := v.Partition(own.Partition); !ok || got != own {
			t.Errorf("%s: %+v", name, got)
		}
	}
	v := NewView(5)
	v.apply(away, fetchedRecords(0, old), 1)
	if got, ok := v.Partition(own.Partition); !ok || got != old {
		t.Errorf("alone: %+v, %v", got, ok)
	}
}

func TestTopicOwner(t *testing.T) {
	stopped := Topic{Mirror: "east", Name: "t", Wish: mirror.Stopped, Promoted: true}
	v := ViewOf(3, stopped, Topic{Mirror: "west", Name: "t", Wish: mirror.Paused})
	if owner, ok := v.TopicOwner("t"); !ok || owner != "west" {
		t.Errorf("got %q, %v", owner, ok)
	}
	if owner, ok := ViewOf(3, stopped).TopicOwner("t"); ok {
		t.Errorf("a promoted topic belongs to %q", owner)
	}
	stopped.Promoted = false
	if _, ok := ViewOf(3, stopped).TopicOwner("t"); !ok {
		t.Error("a topic whose promotion is not finished belongs to nobody")
	}
}

func TestNewTopicIsFilledWithWhatTheViewHolds(t *testing.T) {
	v := NewView(1)
	if v.begin(mirror.TopicID{1}, 1) {
		t.Error("the first topic replaces none")
	}
	kept := state(1, mirror.Mirroring)
	v.apply(0, fetchedRecords(0, state(0, mirror.Mirroring), kept, Tombstone{state(0, 0)}), 3)
	v.markLoaded(0)
	if v.Fresh() {
		t.Error("a topic with records is not fresh")
	}
	if got := v.lost(0); got != nil {
		t.Errorf("nothing is lost yet: %v", got)
	}
	if !v.begin(mirror.TopicID{2}, 1) || v.lost(0) != nil {
		t.Error("nothing may be written again before the new topic was read")
	}
	v.markLoaded(0)
	if got := v.lost(0); fmt.Sprint(got) != fmt.Sprint([]Record{kept}) {
		t.Errorf("to be written again: %v", got)
	}
	v.apply(0, fetchedRecords(0, kept), 1)
	if got := v.lost(0); got != nil {
		t.Errorf("written already: %v", got)
	}
}

// What cannot be read may hold a command.
func TestCommandedUntilAllIsRead(t *testing.T) {
	v := NewView(2)
	v.beginCommands(0, 0)
	if !v.Commanded() {
		t.Error("one partition of two was read")
	}
	v.beginCommands(1, 0)
	v.beginCommands(1, 7)
	if v.Commanded() {
		t.Error("both were empty when they were read first")
	}
}

// A topic stays known when its mirror is deleted.
func TestSeenIsForGood(t *testing.T) {
	v, topic := NewView(1), Topic{Mirror: "east", Name: "orders"}
	v.apply(0, fetchedRecords(0, topic, Tombstone{topic}), 2)
	if _, there := v.Topic("east", "orders"); there || !v.Seen("orders") || v.Seen("others") {
		t.Errorf("there %v, orders seen %v, others seen %v", there, v.Seen("orders"), v.Seen("others"))
	}
}

func BenchmarkApply(b *testing.B) {
	var records []*kgo.Record
	for i := range int32(5000) {
		records = append(records, fetchedRecords(int64(i), state(i, mirror.Mirroring))...)
	}
	for b.Loop() {
		NewView(1).apply(0, records, 5000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*5000), "ns/record")
}
