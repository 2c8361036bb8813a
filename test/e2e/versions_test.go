package e2e

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Upgrade has the nodes that are launched from now on run another release.
func (c *Cluster) Upgrade(t *testing.T, version string) {
	t.Helper()
	j, ok := c.b.(*jvm)
	if !ok {
		t.Fatal("nodes of this kind keep their release")
	}
	jars, err := Jars(version)
	must(t, err)
	j.jars, c.Version = jars, version
}

// A source of the last release before 4 is rolled to the newest under load.
func TestB129_SourceIsRolledToANewerRelease(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S = StartCluster(t, Options{Version: "3.9.1"})
	aliveThrough(t, p, func() {
		p.S.Stop(t, 1)
		p.S.Upgrade(t, defaultVersion)
		p.S.Launch(t, 1)
		p.S.AwaitUp(t)
	})
}

// A source that speaks as brokers of 2.1 do among each other and gives its topics no ids: all the same, and a topic that
// was deleted and created again is not taken for the one before.
func TestB129_SourceWithoutTopicIDs(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S = StartCluster(t, Options{Version: "2.8.2", Props: map[string]string{"inter.broker.protocol.version": "2.1", "log.message.format.version": "2.1"}})
	aliveThrough(t, p, func() {})
}

// aliveThrough mirrors a topic with its settings and a group, has something happen under load, and stops.
func aliveThrough(t *testing.T, p Pair, during func()) {
	t.Helper()
	p.S.Topic(t, "t", 3, "retention.ms", "777000000")
	for i, codec := range []kgo.CompressionCodec{kgo.GzipCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		p.S.Send(t, []kgo.Opt{kgo.ProducerBatchCompression(codec)}, Numbered("t", int32(i), 0, 200)...)
	}
	x := newTxns(t, p.S)
	for i := range 6 {
		x.run(t, "t", int32(i%3), i, i%2 == 0)
	}
	p.S.Commit(t, "g", "t", 1, 150)
	m := NewDaemon(t, p.Mirror("t"))
	if r := m.check(); r.Code != 0 {
		t.Errorf("check: code %d\n%s%s", r.Code, r.Out, r.Err)
	}
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	load := StartLoad(t, p.S, 500, 3, "t")
	during()
	progress(t, p, "t", 3, soon)
	load.Stop(t)
	p.S.Grow(t, "t", 4)
	AwaitLevel(t, p.S, p.D, soon, "t")
	p.S.Send(t, nil, Numbered("t", 3, 0, 20)...)
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
	Eventually(t, soon, func() error { return p.D.wantCommitted("g", "t", 1, 150) })
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
	m.Do("stop", "--mirror", "east", "--topics", "t")
	must(t, p.D.wantSettings("t", "retention.ms", "777000000"))
	p.D.Send(t, nil, Numbered("t", 0, 9000, 5)...)
	failsSafe(t, p, m)
}

// failsSafe: a source topic that is deleted and created again is not taken for the one before, with topic ids or without.
func failsSafe(t *testing.T, p Pair, m *Daemon) {
	t.Helper()
	p.S.Topic(t, "again", 1)
	p.S.Send(t, nil, Numbered("again", 0, 0, 50)...)
	set := p.Mirror("t", "again")
	m.Write(set)
	m.Reload()
	AwaitLevel(t, p.S, p.D, soon, "again")
	before := p.D.TopicID(t, "again")
	p.S.DeleteTopic(t, "again")
	Eventually(t, soon, func() error { return p.S.create("again") }) // the controller may lag behind what brokers tell
	p.S.Send(t, nil, Numbered("again", 0, 5000, 20)...)
	m.Await("FAILED", soon, "again")
	must(t, p.D.wantEnd("again", 0, 50))
	if after := p.D.TopicID(t, "again"); after != before {
		t.Error("the destination topic was replaced")
	}
	row, err := m.Partition("again", 0)
	must(t, err)
	t.Logf("a recreated topic is %s: %s", row.State, row.ErrorMessage)
}

// create creates a topic of one partition.
func (c *Cluster) create(topic string) error {
	_, err := c.adm.CreateTopic(context.Background(), 1, 1, nil, topic)
	return err
}
