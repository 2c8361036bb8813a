package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// Readers of three makes are shown the same records at the same offsets by both sides, and each what the others are
// shown. In exact mode that holds for undecided and aborted data, too. In committed mode these are holes (SPEC §8.5): all
// that the copy has is what the source shows as committed.
func TestOtherReadersAgree(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.D.SetBrokers(t, verification, "false")
	var tellers []*teller
	for _, mode := range []string{"exact", "committed"} {
		w := teller{Tale: &Tale{Ingredient: Ingredient{mode, "settled"}}, c: p.S, topic: mode, story: Story{Seed: 7}, clock: time.Now()}
		t.Cleanup(w.end)
		p.S.Topic(t, mode, 1, "cleanup.policy", "compact", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.0001", "max.compaction.lag.ms", "1000", "delete.retention.ms", "0")
		tellers = append(tellers, &w)
	}
	must(t, together(tellers, (*teller).everyKind))
	s := p.Mirror("exact")
	s.MirrorExtra = []string{"transactions: exact"}
	m := NewDaemon(t, s)
	m.Start()
	m.Do("create", "--mirror", "decided", "--mirror-config", propertiesFile(t, "bootstrap.servers="+p.S.Bootstrap(), "topics.include=committed", "transactions=committed"))
	AwaitLevel(t, p.S, p.D, soon, "exact", "committed")
	shown := readAll(t, p)
	source, copied := "source ", "destination "
	equal := func(what, want, got string) {
		t.Helper()
		if diff := firstDifference(shown[want], shown[got]); diff != "" {
			t.Errorf("%s: %q and %q differ: %s", what, want, got, diff)
		}
	}
	for _, reader := range []string{"Java", "librdkafka", "franz-go"} {
		for _, view := range []string{"exact " + committed, "exact " + uncommitted, "committed " + committed} {
			equal("both sides", source+view+" "+reader, copied+view+" "+reader)
			equal("two readers", source+view+" Java", source+view+" "+reader)
		}
		equal("what is decided and what is there", copied+"committed "+committed+" "+reader, copied+"committed "+uncommitted+" "+reader)
	}
	holdsEveryKind(t, shown[source+"exact "+committed+" Java"], shown[source+"exact "+uncommitted+" Java"])
}

// everyKind writes holes of the cleaner, then all codecs and transactions with keys, values and headers that are absent
// or empty; the last ones have the broker's time. The exact topic ends in a transaction that is left open and a record behind it.
func (w *teller) everyKind() error {
	r := w.story.rand(w.topic)
	if err := errors.Join(w.churn(r), w.churn(r), w.settle(), w.c.Alter(w.topic, "cleanup.policy", "delete")); err != nil {
		return err
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		if err := w.codec(i, codec); err != nil {
			return err
		}
	}
	if err := errors.Join(w.c.Alter(w.topic, "message.timestamp.type", "LogAppendTime"), w.codec(len(codecs), kgo.Lz4Compression())); err != nil {
		return err
	}
	if w.topic == "exact" {
		return w.undecided("open")
	}
	return nil
}

// codec writes plain records, a committed and an aborted transaction.
func (w *teller) codec(i int, codec kgo.CompressionCodec) error {
	cl, err := w.producer(w.story.rand("plain"), kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		name := fmt.Sprint("codec ", i, " commit ", bool(end))
		x, err := w.transactional(w.story.rand(name), name)
		if err != nil {
			return err
		}
		if err := x.BeginTransaction(); err != nil {
			return err
		}
		for range 2 { // both producers take turns
			if err := send(x, w.nullsAndEmpties(name)...); err != nil {
				return err
			}
			if err := send(cl, w.nullsAndEmpties("plain")...); err != nil {
				return err
			}
		}
		if err := x.EndTransaction(context.Background(), end); err != nil {
			return err
		}
	}
	return nil
}

// undecided leaves a transaction open.
func (w *teller) undecided(name string) error {
	x, err := w.transactional(w.story.rand(name), name)
	if err != nil {
		return err
	}
	if err := x.BeginTransaction(); err != nil {
		return err
	}
	if err := send(x, w.nullsAndEmpties(name)...); err != nil {
		return err
	}
	cl, err := w.producer(w.story.rand("behind"))
	if err != nil {
		return err
	}
	return send(cl, w.nullsAndEmpties("behind")...)
}

// nullsAndEmpties are records in every combination of a key, value and headers that are absent, empty or there.
func (w *teller) nullsAndEmpties(word string) (all []*kgo.Record) {
	kinds := [][]byte{nil, {}, []byte(word)}
	for i := range 27 {
		rec := &kgo.Record{Topic: w.topic, Key: kinds[i%3], Value: kinds[i/3%3], Timestamp: w.clock.Add(time.Duration(i) * time.Second)}
		switch i / 9 {
		case 1:
			rec.Headers = []kgo.RecordHeader{{Key: "", Value: nil}}
		case 2:
			rec.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte{}}, {Key: "h", Value: []byte(word)}, {Key: "n", Value: nil}}
		}
		all = append(all, rec)
	}
	return all
}

// readAll has every reader read both topics of both sides in both isolation levels.
func readAll(t *testing.T, p Pair) map[string]string {
	t.Helper()
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(3)
	shown := map[string]string{}
	for side, c := range map[string]*Cluster{"source": p.S, "destination": p.D} {
		for _, view := range [][2]string{{"exact", committed}, {"exact", uncommitted}, {"committed", committed}, {"committed", uncommitted}} {
			for name, read := range foreignReaders {
				g.Go(func() error {
					lines, err := read(c, view[0], view[1])
					mu.Lock()
					defer mu.Unlock()
					shown[strings.Join([]string{side, view[0], view[1], name}, " ")] = lines
					return err
				})
			}
		}
	}
	must(t, g.Wait())
	return shown
}

// holdsEveryKind demands that what was read is what the test is about.
func holdsEveryKind(t *testing.T, decided, everything string) {
	t.Helper()
	for _, want := range []string{"\troll\tx\t\n", "\tNULL\tNULL\t\n", "\t\t\t\n", "\tcodec 4 commit true\tNULL\th:,h:codec 4 commit true,n:NULL\n", "codec 5 commit true"} {
		if !strings.Contains(decided, want) {
			t.Errorf("no record like %q", want)
		}
	}
	if strings.HasPrefix(decided, "0\t") {
		t.Error("the cleaner has made no hole")
	}
	for _, hidden := range []string{"commit false", "open", "behind"} {
		if strings.Contains(decided, hidden) || !strings.Contains(everything, hidden) {
			t.Errorf("%q is to be seen by those who read all, and by nobody else", hidden)
		}
	}
}

func firstDifference(a, b string) string {
	left, right := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(left), len(right)) {
		if left[i] != right[i] {
			return fmt.Sprintf("line %d: %.200q, %.200q", i, left[i], right[i])
		}
	}
	if len(left) != len(right) {
		return fmt.Sprintf("%d lines, %d lines", len(left)-1, len(right)-1)
	}
	return ""
}
