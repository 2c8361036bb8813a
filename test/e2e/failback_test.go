package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Back is a mirror from D to S.
func (p Pair) Back(topics ...string) Settings {
	s := Pair{p.D, p.S}.Mirror(topics...)
	s.Mirror, s.Group = "west", "mirrord-west"
	return s
}

// There, back and there again: each way copies exactly what the other side lacks, at no offset twice. The way back is a
// mirror made by command, on a cluster that no instance has run on: its topics hold data, and are nobody's remains.
func TestFailbackCopiesNothingTwice(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 2)
	for i := range int32(2) {
		p.S.Send(t, nil, Numbered("t", i, 0, 2000)...)
	}
	there := NewDaemon(t, p.Mirror("t"))
	there.Start()
	AwaitLevel(t, p.S, p.D, 40*time.Second, "t")
	there.Do("stop", "--mirror", "east", "--topics", "t")
	there.Stop()

	p.D.Send(t, nil, Numbered("t", 0, 2000, 30)...)
	s := p.Back()
	s.Mirror = ""
	back := NewDaemon(t, s)
	back.Start()
	back.Do("create", "--mirror", "west", "--mirror-config", propertiesFile(t, "bootstrap.servers="+p.D.Bootstrap(), "topics.include=t"))
	AwaitLevel(t, p.D, p.S, 40*time.Second, "t")
	Identical(t, p.D, p.S, "t")
	if n := back.Metric("mirrord_produced_records_total", `topic="t"`); n != 30 {
		t.Errorf("%v records were copied back, want 30", n)
	}
	back.Do("stop", "--mirror", "west", "--topics", "t")
	back.Stop()

	p.S.Send(t, nil, Numbered("t", 1, 2000, 40)...)
	there.Start()
	there.Do("start", "--mirror", "east", "--topics", "t")
	AwaitLevel(t, p.S, p.D, 40*time.Second, "t")
	Identical(t, p.S, p.D, "t")
	if n := there.Metric("mirrord_produced_records_total", `topic="t"`); n != 40 {
		t.Errorf("%v records were copied after the second start, want 40", n)
	}
}

// exported is a line of what reseeding saves.
type exported struct {
	Offset    int64
	Timestamp int64
	Key       *string
	KeyBase64 []byte
	Value     *string
	ValueBin  []byte `json:"valueBase64"`
	Headers   []exportedHeader
}

type exportedHeader struct {
	Key      *string
	Value    *string
	ValueBin []byte `json:"valueBase64"`
}

// Both sides went on after they parted. The way back is refused, naming where, how many and from when; verify finds the
// place by itself; reseeding saves the tail to a file, from which every record can be produced again as it was, copies
// the topic anew with its settings, and commits the group's offsets again.
func TestFailbackDiverged(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1, "cleanup.policy", "delete", "max.message.bytes", "3000000", "retention.ms", "-1")
	p.S.Send(t, nil, Numbered("t", 0, 0, 950)...)
	there := NewDaemon(t, p.Mirror("t"))
	there.Start()
	AwaitLevel(t, p.S, p.D, 40*time.Second, "t")
	there.Do("stop", "--mirror", "east", "--topics", "t")
	tail := oddRecords("t", 50)
	p.S.Send(t, nil, tail...)
	p.D.Send(t, nil, Numbered("t", 0, 5000, 60)...)
	p.D.Commit(t, "readers", "t", 0, 980)
	seam(t, there, "t", 950)
	there.Stop()

	back := NewDaemon(t, p.Back("t"))
	back.Start()
	back.failed("t", 950, 50, "--reseed")
	if logs, err := p.S.Logs(context.Background(), "t"); err != nil || logs[0].End != 1000 {
		t.Errorf("the side that has to give way is %v, %v; want the end 1000", logs, err)
	}
	back.Do("recover", "--mirror", "west", "--topics", "t", "--reseed")
	AwaitLevel(t, p.D, p.S, 40*time.Second, "t")
	Identical(t, p.D, p.S, "t")
	Eventually(t, 20*time.Second, func() error { return p.S.wantSettings("t", "max.message.bytes", "3000000") })
	Eventually(t, 20*time.Second, func() error { return p.S.wantCommitted("readers", "t", 0, 980) })
	producedBack(t, p.S, back.dir, tail)
}

// The log start of the side in use has passed the place where both sides parted: what only the other one has cannot be
// compared any more, but it is known how far it was mirrored, or that it never was. It is told, kept, and exported whole.
func TestFailbackBelowTheNewLogStart(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	tails := map[string][]*kgo.Record{}
	for _, topic := range []string{"passed", "within"} {
		p.S.Topic(t, topic, 1)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 950)...)
		tails[topic] = oddRecords(topic, 50)
	}
	there := NewDaemon(t, p.Mirror("passed", "within"))
	there.Start()
	AwaitLevel(t, p.S, p.D, soon, "passed", "within")
	there.Do("stop", "--mirror", "east", "--topics", ".*")
	there.Stop()
	for topic, start := range map[string]int64{"passed": 1500, "within": 980, "never": 60} {
		if topic == "never" {
			p.D.Topic(t, topic, 1)
			p.S.Topic(t, topic, 1)
			tails[topic] = Numbered(topic, 0, 7000, 20)
		}
		p.S.Send(t, nil, tails[topic]...)
		p.D.Send(t, nil, Numbered(topic, 0, 5000, 1000)...)
		p.D.trim(t, topic, 0, start)
	}
	back := NewDaemon(t, p.Back("passed", "within", "never"))
	back.Start()
	back.failed("passed", 950, 50, "--reseed")
	back.failed("within", 950, 50, "--reseed")
	back.failed("never", 0, 20, "nothing is left to show")
	for topic, end := range map[string]int64{"passed": 1000, "never": 20} {
		if logs, err := p.S.Logs(context.Background(), topic); err != nil || logs[0].Start != 0 || logs[0].End != end {
			t.Errorf("%s, on the side that has to give way: %+v, %v", topic, logs, err)
		}
	}
	back.Do("recover", "--mirror", "west", "--topics", "within", "--reseed")
	producedBack(t, p.S, back.dir, tails["within"])
	AwaitLevel(t, p.D, p.S, soon, "within")
	Identical(t, p.D, p.S, "within")
}

// seam demands that verify --full reports the first difference of a topic's only partition.
func seam(t *testing.T, m *Daemon, topic string, at int64) {
	t.Helper()
	r := m.Run("verify", "--config", m.ConfigFile(), "--mirror", "east", "--topics", topic, "--full", "--json")
	var rows []struct {
		Topic           string
		Equal           bool
		FirstDifference int64
		Detail          string
	}
	must(t, json.Unmarshal([]byte(r.Out), &rows))
	if r.Code != 1 || len(rows) != 1 || rows[0].Equal || rows[0].FirstDifference != at {
		t.Errorf("verify: exit code %d, %+v; want the first difference %d", r.Code, rows, at)
	}
}

// oddRecords are records of every shape that an export has to carry.
func oddRecords(topic string, n int) []*kgo.Record {
	records := Numbered(topic, 0, 7000, n)
	records[0].Key, records[1].Value = nil, nil
	records[2].Key, records[3].Value = []byte{}, []byte{}
	records[4].Key, records[5].Value = []byte{0xff, 0}, []byte{0xc0, '"', '\n'}
	records[6].Value = []byte("tab\tline\nquote\" é <&>")
	records[7].Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "", Value: nil}, {Key: "b", Value: []byte{0xfe}}}
	for i, r := range records {
		r.Timestamp = time.UnixMilli(1_600_000_000_000 + int64(i))
	}
	return records
}

// producedBack reads the only export below a folder and demands that it holds the records.
func producedBack(t *testing.T, c *Cluster, dir string, want []*kgo.Record) {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(filepath.Join(dir, "reseed"), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.HasSuffix(path, "l") {
			files = append(files, path)
		}
		return err
	}))
	if len(files) != 1 {
		t.Fatalf("exported files: %v", files)
	}
	f, err := os.Open(files[0])
	must(t, err)
	defer f.Close()
	var again []*kgo.Record
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e exported
		must(t, json.Unmarshal(lines.Bytes(), &e))
		if e.Offset != want[0].Offset+int64(len(again)) {
			t.Fatalf("exported offset %d after %d records", e.Offset, len(again))
		}
		again = append(again, e.record())
	}
	c.Topic(t, "again", 1)
	c.Send(t, nil, again...)
	log := Log{0, int64(len(want)), int64(len(want))}
	got := newReader(c, "again", 0, log)
	for _, w := range want {
		g, err := got.next()
		must(t, err)
		w = &kgo.Record{Offset: w.Offset - want[0].Offset, Timestamp: w.Timestamp, Key: w.Key, Value: w.Value, Headers: w.Headers}
		if diff := difference(w, g); diff != "" {
			t.Errorf("produced again: %s", diff)
		}
	}
}

func (e exported) record() *kgo.Record {
	bytes := func(s *string, bin []byte) []byte {
		if s != nil {
			return []byte(*s)
		}
		return bin
	}
	r := &kgo.Record{Topic: "again", Key: bytes(e.Key, e.KeyBase64), Value: bytes(e.Value, e.ValueBin), Timestamp: time.UnixMilli(e.Timestamp)}
	for _, h := range e.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: *h.Key, Value: bytes(h.Value, h.ValueBin)})
	}
	return r
}

// Verify finds where both sides part though no epoch, no length and no last mirrored offset tells: deep inside logs of
// equal length, record by record.
func TestVerifyFindsTheSeamByItself(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	const n = 30_000
	for _, topic := range []string{"early", "late", "equal"} {
		p.S.Topic(t, topic, 1)
	}
	m := NewDaemon(t, p.Mirror("early", "late", "equal"))
	m.Start()
	seams := map[string]int{"early": 17, "late": n - 3, "equal": n}
	for topic, at := range seams {
		p.S.Send(t, nil, Numbered(topic, 0, 0, at)...)
	}
	AwaitLevel(t, p.S, p.D, 60*time.Second, "early", "late", "equal")
	m.Do("stop", "--mirror", "east", "--topics", "early,late,equal")
	stamp := time.Now()
	for topic, at := range seams {
		for _, c := range []*Cluster{p.S, p.D} {
			rest := Numbered(topic, 0, at, n-at)
			for i, r := range rest {
				r.Timestamp = stamp
				if i == 0 && c == p.D {
					r.Value = slices.Concat(r.Value, []byte("."))
				}
			}
			c.Send(t, nil, rest...)
		}
	}
	for topic, at := range seams {
		if topic == "equal" {
			m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--topics", topic, "--full")
			continue
		}
		seam(t, m, topic, int64(at))
	}
}

// A topic that stamps or deletes records by its own rules must have the mirror's rules before the first record of a new
// start arrives, there as on the way back: what its broker stamps or deletes cannot be undone.
func TestR8_SettingsComeBeforeRecordsAtEachStart(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	long := fmt.Sprint(int64(365 * 24 * time.Hour / time.Millisecond))
	p.S.Topic(t, "stamps", 1, "message.timestamp.type", "LogAppendTime")
	p.S.Topic(t, "deletes", 1, "retention.ms", long)
	there, back := NewDaemon(t, p.Mirror("stamps", "deletes")), NewDaemon(t, p.Back("stamps", "deletes"))
	there.Start()
	back.Start()
	old := time.Now().Add(-364 * 24 * time.Hour)
	write := func(c *Cluster, n int) {
		records := append(Numbered("stamps", 0, n, 3), Numbered("deletes", 0, n, 3)...)
		for _, r := range records {
			r.Timestamp = old
		}
		c.Send(t, nil, records...)
	}
	for round := range 2 {
		for _, way := range []struct {
			m        *Daemon
			mirror   string
			from, to *Cluster
		}{{there, "east", p.S, p.D}, {back, "west", p.D, p.S}} {
			write(way.from, round)
			way.m.Do("start", "--mirror", way.mirror, "--topics", "stamps,deletes")
			write(way.from, round)
			AwaitLevel(t, way.from, way.to, 40*time.Second, "stamps", "deletes")
			Identical(t, way.from, way.to, "stamps", "deletes")
			way.m.Do("stop", "--mirror", way.mirror, "--topics", "stamps,deletes")
		}
	}
}
