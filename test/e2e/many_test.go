package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/mirror"
)

// failoverLimit is how long a failover may take, of thousands of partitions and without a source.
const failoverLimit = 10 * time.Second

// most is how many connections to a source that is not there are no storm: fewer than there are partitions.
const most = 250

// The source is dead: a stop of all topics promotes all partitions in time, with few requests and few lines of log. Then
// it is there again and dies again, this time with partitions that have failed, and the daemon is killed twice in the middle
// of the stop. The next daemon ends the stop by itself.
func TestManyPartitionsFailOverWithoutTheSource(t *testing.T) {
	t.Parallel()
	c := NewCrowd(t, 30)
	s := c.Proxied("t[0-9]+")
	s.Extra = []string{"instance_id: one"} // the next process takes over at once
	m := NewDaemon(t, s)
	began := time.Now()
	m.Start()
	c.AwaitAll(m, "MIRRORING", 3)
	t.Logf("%d partitions are mirrored %v after the start", c.Size(), time.Since(began))
	over := c.Outage(t)
	before := c.TollOf(m)
	r := m.Do("stop", "--mirror", "east", "--topics", ".*")
	if r.Took > failoverLimit {
		t.Errorf("the stop took %v", r.Took)
	}
	must(t, c.wantAll(m, "STOPPED"))
	c.TollOf(m).Since(before).Within(t, fmt.Sprint("stop in ", r.Took), most, 400, 100, 5*c.Size())
	for name, row := range m.Rows() {
		if row.LastMirrorOffset != 3 || row.LastMirrorEpoch < 0 || row.DestinationOffset != 3 {
			t.Errorf("%s: %+v", name, row)
		}
	}
	over()
	must(t, writable(c.D, "t2", c.Each)) // by this it is not what the source holds any more
	if r := m.Run("start", "--mirror", "east", "--topics", ".*"); r.Code != 1 || !strings.Contains(r.Err, "t2-0 is FAILED") {
		t.Errorf("the start gave %d: %s", r.Code, r.Err)
	}
	c.D.Send(t, nil, foreign(c.Each, "t1")...)
	Eventually(t, c.Limit, func() error { return c.wantStates(m, "MIRRORING", "FAILED", "t1", "t2") })
	c.Outage(t)
	c.stopAcrossCrashes(t, m)
	answeredOnce(t, c.D, c.Limit)
	for _, topic := range []string{"t0", "t1", "t2"} {
		must(t, writable(c.D, topic, c.Each))
	}
}

// foreign is a record of nobody's for each partition.
func foreign(partitions int32, topic string) (records []*kgo.Record) {
	for p := range partitions {
		records = append(records, Numbered(topic, p, 900, 1)...)
	}
	return records
}

// wantStates demands one state of all partitions but those of some topics, which have another one.
func (c Crowd) wantStates(m *Daemon, most, few string, topics ...string) error {
	excepted := map[string]bool{}
	for _, topic := range topics {
		excepted[topic] = true
	}
	for name, row := range m.Rows() {
		want := most
		if excepted[row.Topic] {
			want = few
		}
		if row.State != want {
			return fmt.Errorf("%s is %s (%s), want %s", name, row.State, row.ErrorMessage, want)
		}
	}
	return nil
}

// stopAcrossCrashes gives the command and kills whoever executes it, twice.
func (c Crowd) stopAcrossCrashes(t *testing.T, m *Daemon) {
	t.Helper()
	proxy, written := c.D.Nodes[0].Proxy, 0
	proxy.HoldSome(keyTxnOffsetCommit, func([]byte) bool { written++; return written > 2 }) // after the command, and some of the shards
	m.Do("stop", "--mirror", "east", "--topics", ".*", "--no-wait")
	c.killHeld(t, m)
	proxy.Hold(keyDescribeProducers)
	m.Launch()
	c.killHeld(t, m)
	began := time.Now()
	m.Launch()
	Eventually(t, c.Limit, func() error { return c.wantAll(m, "STOPPED") })
	took := time.Since(began)
	t.Logf("all is stopped %v after the daemon was started again", took)
	if took > Unhurried(failoverLimit) {
		t.Errorf("the stop took %v after the daemon was started again", took)
	}
}

// killHeld kills an instance as soon as one of its requests is held.
func (c Crowd) killHeld(t *testing.T, m *Daemon) {
	t.Helper()
	proxy, began := c.D.Nodes[0].Proxy, time.Now()
	Eventually(t, c.Limit, func() error {
		if proxy.Held() == 0 {
			return fmt.Errorf("nothing is held")
		}
		return nil
	})
	took := time.Since(began)
	m.Kill()
	proxy.Heal()
	states := map[string]int{}
	for _, row := range m.Describe() {
		states[row.State]++
	}
	t.Logf("the daemon is killed after %v: %v", took, states)
	if took > Unhurried(failoverLimit) {
		t.Errorf("the daemon did nothing for %v", took)
	}
	if states["STOPPED"] == c.Size() {
		t.Error("that is not in the middle of the stop")
	}
}

// The source is gone for a while: for a daemon that lives on, for one that is started meanwhile and so knows of no
// partition how far it has got, and for partitions that all have to be compared with it before they go on. Nothing
// storms, nothing is given up, and all is level as soon as the source is back.
func TestManyPartitionsOutageAndReturn(t *testing.T) {
	t.Parallel()
	c := NewCrowd(t, 30)
	s := c.Proxied("t[0-9]+")
	s.Extra, s.Retry = []string{"instance_id: one"}, "initial_backoff: 1s, max_attempts: 3"
	m := NewDaemon(t, s)
	m.Start()
	c.AwaitAll(m, "MIRRORING", 3)
	over := c.Outage(t)
	for _, outage := range []struct {
		what    string
		befalls func()
	}{
		{"an outage", func() {}},
		{"an outage that a new daemon finds", func() { m.Kill(); m.Start() }},
		{"an outage in which all is to be compared", func() { c.set(m, mirror.Failed); c.set(m, mirror.LogTruncation) }},
	} {
		outage.befalls()
		before := c.TollOf(m)
		c.wait(t, m, 20)
		c.TollOf(m).Since(before).Within(t, outage.what, most, 300, 100, 100)
		for name, row := range m.Rows() {
			if row.RetryAttempt < 0 || row.RetryAttempt > 1 {
				t.Errorf("%s: %+v", name, row)
			}
		}
	}
	before := c.TollOf(m)
	over()
	c.Write(t, 3, 1)
	began := time.Now()
	c.AwaitAll(m, "MIRRORING", 4)
	c.TollOf(m).Since(before).Within(t, fmt.Sprint("return in ", time.Since(began)), 4*most, 2000+2*c.Size(), 200, 4*c.Size())
	Eventually(t, c.Limit, func() error {
		before = c.TollOf(m)
		m.refreshed(3)
		if more := c.TollOf(m).Since(before); more.Lines+more.Offsets+more.Connections > 0 {
			return fmt.Errorf("it does not come to rest: %s", more)
		}
		return nil
	})
	c.TollOf(m).Since(before).Within(t, "quiet", 0, 200, 0, 0)
	for name, row := range m.Rows() {
		want(t, "attempts of "+name, row.RetryAttempt, 0)
	}
	Identical(t, c.S, c.D, c.Topics[:3]...)
	SoundState(t, c.D)
}

// set proposes a state for all partitions. What has gone on by itself since is left alone; all has not.
func (c Crowd) set(m *Daemon, state mirror.State) {
	m.t.Helper()
	req := mirror.WriteMirrorStatesRequest{MirrorName: "east"}
	for _, topic := range c.Topics {
		of := mirror.WriteTopic{Name: topic}
		for p := range c.Each {
			of.Partitions = append(of.Partitions, mirror.WritePartition{PartitionIndex: p, LastMirrorEpoch: -1, State: state})
		}
		req.Topics = append(req.Topics, of)
	}
	var resp mirror.WriteMirrorStatesResponse
	want(m.t, "code of HTTP", m.Post("/api/v1/WriteMirrorStates", req, &resp), 200)
	codes := map[int16]int{}
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			codes[p.ErrorCode]++
		}
	}
	if codes[0] == 0 || codes[0]+codes[mirror.CodeInvalidRequest] != c.Size() {
		m.t.Fatalf("%s is answered with %v", state, codes)
	}
}

// wait lets a daemon go on for some beats of its heart.
func (c Crowd) wait(t *testing.T, m *Daemon, beats int) {
	t.Helper()
	const keyHeartbeat = 12
	proxy := c.D.Nodes[0].Proxy
	first := proxy.Requests(keyHeartbeat)
	Eventually(t, c.Limit, func() error {
		if n := proxy.Requests(keyHeartbeat) - first; n < beats {
			return fmt.Errorf("%d heartbeats of %s", n, m.http)
		}
		return nil
	})
}
