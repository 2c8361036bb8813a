package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Logs as bad as logs get, mirrored through faults, come out equal. Without MIRRORD_STORM only a few seeds run; with it
// ROUNDS of them (200) from SEED (1) on, and a story that fails is shrunk. DROP leaves ingredients out of a story.
func TestStorm(t *testing.T) {
	t.Parallel()
	seeds, storm := []uint64{1, 2, 3}, os.Getenv("MIRRORD_STORM") != ""
	if storm || os.Getenv("SEED") != "" {
		seeds = nil
		first, rounds := number("SEED", 1), number("ROUNDS", 200)
		for i := range rounds {
			seeds = append(seeds, uint64(first+i))
		}
	}
	drop := strings.FieldsFunc(os.Getenv("DROP"), func(r rune) bool { return r == ',' })
	p := stormPair(t)
	for _, seed := range seeds {
		s := NewStory(seed, drop...)
		if !t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { s.play(t, p) }) && storm {
			shrink(t, p, seed, drop)
		}
	}
}

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

// stormPair is a source of two nodes and a destination of three that lets transactions through as they are.
func stormPair(t *testing.T) Pair {
	p := Pair{StartCluster(t, Options{Nodes: 2}), StartCluster(t, Options{Nodes: 3, Heap: "384m", Props: map[string]string{"transaction.partition.verification.enable": "false"}})}
	return p
}

// shrink drops ingredients one after another as long as the story still fails, and tells what is left.
func shrink(t *testing.T, p Pair, seed uint64, drop []string) {
	for _, id := range NewStory(seed, drop...).IDs() {
		s := NewStory(seed, append(slices.Clone(drop), id)...)
		if len(s.Tales) == 0 || !slices.Contains(NewStory(seed, drop...).IDs(), id) {
			continue
		}
		if !t.Run(fmt.Sprint("seed=", seed, "/without=", id), func(t *testing.T) { s.play(t, p) }) {
			drop = append(drop, id)
		}
	}
	t.Logf("smallest story that fails: SEED=%d ROUNDS=1 DROP=%s\n%v", seed, strings.Join(drop, ","), NewStory(seed, drop...))
}

// play runs a story and judges the logs.
func (s Story) play(t *testing.T, p Pair) {
	d := &drama{Story: s, Pair: p}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s)
			t.Log(p.S.b.logTail(0))
		}
		for _, c := range []*Cluster{p.S, p.D} {
			for _, n := range c.Nodes {
				n.Proxy.Heal()
			}
			c.Reset(t)
		}
	})
	tellers := d.tellers(t)
	must(t, together(tellers, (*teller).past))
	d.begin(t)
	present := make(chan error, 1)
	go func() { present <- together(tellers, (*teller).present) }()
	for _, f := range s.Faults {
		if err := d.fault(f); err != nil {
			t.Error(err)
		}
		span(s.rand("pause after "+f.ID), time.Second)
	}
	must(t, <-present)
	d.heal()
	d.judge(t, "with transactions open")
	must(t, together(tellers, func(w *teller) error { return w.closeAll(s.rand("end of " + w.ID)) }))
	d.judge(t, "at the end")
	d.ending(t)
}

func (d *drama) tellers(t *testing.T) (all []*teller) {
	for _, tale := range d.Tales {
		topic := fmt.Sprint("storm-", d.Seed, "-", tale.ID)
		d.S.Place(t, topic, 1, int16(d.Replicas), tale.Settings...)
		Eventually(t, 20*time.Second, func() error { _, err := d.S.Logs(context.Background(), topic); return err })
		w := &teller{Tale: tale, c: d.S, topic: topic, story: d.Story, clock: time.Now()}
		t.Cleanup(w.end)
		d.topics, all = append(d.topics, topic), append(all, w)
	}
	return all
}

// together runs something for all tellers at once.
func together(all []*teller, do func(*teller) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, w := range all {
		wg.Go(func() { errs[i] = do(w) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// past writes what is there before the mirror begins.
func (t *teller) past() error {
	for _, a := range t.Before {
		if err := t.act(a); err != nil {
			return err
		}
	}
	if t.Name != "settled" {
		return nil
	}
	return t.settle()
}

// settle has the topic cleaned until nothing changes any more, and never again.
func (t *teller) settle() error {
	if err := t.clean(nil); err != nil {
		return err
	}
	for before, same := int64(-1), 0; same < 4; time.Sleep(500 * time.Millisecond) {
		n, err := t.c.Size(t.topic)
		if err != nil {
			return err
		}
		if same++; n != before {
			before, same = n, 0
		}
	}
	return t.c.Alter(t.topic, "min.cleanable.dirty.ratio", "1", "max.compaction.lag.ms", "9223372036854775807")
}

func (t *teller) present() error {
	for _, a := range t.During {
		if err := t.act(a); err != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil
}

func (d *drama) begin(t *testing.T) {
	for i := range d.Instances {
		s := d.Proxied(d.topics...)
		s.Extra = []string{"session_timeout: 6s", fmt.Sprintf("fetch: {threads: %d}", d.Threads), "log: {level: debug}"}
		if d.Static {
			s.Extra = append(s.Extra, fmt.Sprintf("instance_id: i%d", i))
		}
		s.MirrorExtra = []string{"transactions: " + d.Transactions, "fillers: " + d.Fillers, "replication_factor: 3"}
		m := NewDaemon(t, s)
		m.Launch()
		d.daemons = append(d.daemons, m)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.daemons[0].Run("describe").Out)
		}
	})
	time.Sleep(time.Second)
}

func (d *drama) heal() {
	for _, c := range []*Cluster{d.S, d.D} {
		for _, n := range c.Nodes {
			n.Proxy.Heal()
		}
	}
}

// judge demands equal logs. In committed mode an open transaction rightly holds the copy back.
func (d *drama) judge(t *testing.T, when string) {
	t.Helper()
	if d.Transactions == "committed" && when != "at the end" {
		return
	}
	d.level(t)
	for i, tale := range d.Tales {
		// Each replica is cleaned on its own, so that a settled log changes with its leader.
		cleaned := tale.Name == "living" || tale.Name == "compact and delete" || tale.Name == "settled" && d.Replicas > 1
		Eventually(t, 10*time.Second, func() error { return Alike(d.S, d.D, View{Cleaned: cleaned}, d.topics[i]) })
		if d.Transactions == "exact" && !cleaned {
			if err := Alike(d.S, d.D, View{Uncommitted: true}, d.topics[i]); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
}

// ending has mirrord verify, stop, and go on from where it stopped.
func (d *drama) ending(t *testing.T) {
	t.Helper()
	m := d.daemons[0]
	all := strings.Join(d.topics, ",")
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
	m.Do("stop", "--mirror", "east", "--topics", all)
	for _, topic := range d.topics {
		logs, err := d.D.Logs(context.Background(), topic)
		must(t, err)
		if logs[0].Stable != logs[0].End {
			t.Errorf("%s is stopped and ends at %d with the last stable offset %d", topic, logs[0].End, logs[0].Stable)
		}
	}
	m.Do("start", "--mirror", "east", "--topics", all)
	for _, topic := range d.topics {
		d.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
	}
	d.judge(t, "at the end")
}
