package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// drama is a story at work.
type drama struct {
	Story
	Pair
	daemons []*Daemon
	topics  []string
}

// faults are what can happen to a mirror, and how often.
var faults = []struct {
	name   string
	weight int
	do     func(*drama, *rand.Rand) error
}{
	{"kill", 5, (*drama).kill},
	{"freeze", 2, (*drama).freeze},
	{"restart", 1, (*drama).restart},
	{"reset destination", 2, func(d *drama, r *rand.Rand) error { d.some(d.D, r).Reset(); return nil }},
	{"reset source", 1, func(d *drama, r *rand.Rand) error { d.some(d.S, r).Reset(); return nil }},
	{"cut destination", 2, func(d *drama, r *rand.Rand) error { return d.during(d.some(d.D, r), (*Proxy).Cut, r) }},
	{"cut source", 1, func(d *drama, r *rand.Rand) error { return d.during(d.some(d.S, r), (*Proxy).Cut, r) }},
	{"black hole destination", 2, func(d *drama, r *rand.Rand) error { return d.during(d.some(d.D, r), (*Proxy).BlackHole, r) }},
	{"black hole source", 1, func(d *drama, r *rand.Rand) error { return d.during(d.some(d.S, r), (*Proxy).BlackHole, r) }},
	{"lose answers", 6, (*drama).loseAnswers},
	{"lose fetches", 1, func(d *drama, r *rand.Rand) error { d.some(d.S, r).Swallow(keyFetch, 1+r.IntN(3)); return nil }},
	{"slow", 1, func(d *drama, r *rand.Rand) error {
		return d.during(d.some(d.D, r), func(p *Proxy) { p.Latency(300 * time.Millisecond) }, r)
	}},
	{"move leaders", 3, func(d *drama, r *rand.Rand) error { return d.moveLeaders(d.D, r) }},
	{"move source leaders", 0, func(d *drama, r *rand.Rand) error { return d.moveLeaders(d.S, r) }}, // drawn by moveSource
	{"kill destination node", 1, (*drama).killNode},
}

func (d *drama) fault(i Ingredient) error {
	for _, f := range faults {
		if f.name == i.Name {
			if err := f.do(d, d.rand(i.ID)); err != nil {
				return fmt.Errorf("%s, %s: %w", i.ID, i.Name, err)
			}
		}
	}
	return nil
}

func (d *drama) some(c *Cluster, r *rand.Rand) *Proxy { return pick(r, c.Nodes...).Proxy }

func (d *drama) daemon(r *rand.Rand) *Daemon { return pick(r, d.daemons...) }

func span(r *rand.Rand, most time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(most)))) }

func (d *drama) during(p *Proxy, begin func(*Proxy), r *rand.Rand) error {
	begin(p)
	span(r, 3*time.Second)
	p.Heal()
	return nil
}

// kill ends an instance in the middle of whatever it does, several times.
func (d *drama) kill(r *rand.Rand) error {
	m := d.daemon(r)
	for range 1 + r.IntN(4) {
		m.Kill()
		if r.IntN(3) == 0 {
			span(r, 2*time.Second)
		}
		m.Launch()
		span(r, 3*time.Second)
	}
	return nil
}

func (d *drama) freeze(r *rand.Rand) error {
	m := d.daemon(r)
	m.Freeze()
	span(r, 9*time.Second)
	m.Thaw()
	return nil
}

func (d *drama) restart(r *rand.Rand) error {
	m := d.daemon(r)
	m.Stop()
	m.Launch()
	return nil
}

// loseAnswers has the destination do what it is asked and say nothing.
func (d *drama) loseAnswers(r *rand.Rand) error {
	for range 1 + r.IntN(10) {
		key := pick(r, keyProduce, keyProduce, keyProduce, keyWriteTxnMarkers, keyWriteTxnMarkers, keyEndTxn, keyInitProducerID, keyDeleteRecords,
			keyListOffsets, keyDescribeProducers, keyTxnOffsetCommit)
		d.some(d.D, r).Swallow(int16(key), 1)
		span(r, 300*time.Millisecond)
	}
	return nil
}

// moveLeaders gives every mirrored partition another leader by reordering its replicas.
func (d *drama) moveLeaders(c *Cluster, r *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	listed, err := c.adm.ListTopics(ctx, d.topics...)
	if err != nil {
		return err
	}
	var order kadm.AlterPartitionAssignmentsReq
	moved := kadm.TopicsSet{}
	for _, t := range listed {
		for _, p := range t.Partitions {
			if n := len(p.Replicas); n > 1 {
				turn := 1 + r.IntN(n-1)
				order.Assign(t.Topic, p.Partition, append(append([]int32{}, p.Replicas[turn:]...), p.Replicas[:turn]...))
				moved.Add(t.Topic, p.Partition)
			}
		}
	}
	if len(moved) == 0 {
		return nil
	}
	if _, err := c.adm.AlterPartitionAssignments(ctx, order); err != nil {
		return err
	}
	_, err = c.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, moved)
	return err
}

// killNode ends a destination broker and brings it back.
func (d *drama) killNode(r *rand.Rand) error {
	i := r.IntN(len(d.D.Nodes))
	err := d.D.b.kill(i)
	span(r, 8*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	return errors.Join(err, d.D.b.launch(i), d.D.awaitUp(ctx))
}
