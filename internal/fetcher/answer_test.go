package fetcher

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// A batch that is acknowledged after its partition was stopped counts: where the partition was mirrored to is put on
// record from what is reported then (protocol R19).
func TestR19_WhatIsAcknowledgedAfterAStopIsReported(t *testing.T) {
	pool := NewPool(Config{MemoryLimit: 1 << 20}, Deps{})
	m := &mirror.Resolved{Definition: mirror.DefaultDefinition("east"), TransactionsMode: mirror.Committed, FillersMode: mirror.Markers}
	target := mirror.Target{Partition: mirror.Partition{Mirror: "east"}, Topic: "t", Mirror: m, Run: true, Source: mirror.NoPosition}
	batch, err := recordbatch.Build(nil, recordbatch.CodecNone, recordbatch.Record{Offset: 100}, recordbatch.Record{Offset: 101}, recordbatch.Record{Offset: 102})
	if err != nil {
		t.Fatal(err)
	}
	p := newPart(target, newSource(pool, m), pool.metrics.topic("east", "t"))
	p.pipe = pipeline{phase: running, own: recordbatch.Identity{ProducerID: 1}}
	p.pipe.resume(place{end: 100, own: p.pipe.own})
	p.pipe.push([]item{{kind: data, from: 100, to: 103, batch: batch, hold: testHold(), maxTime: 1, epoch: 7}})
	p.pipe.take(nil)
	p.mu.Lock()
	p.halt()
	p.mu.Unlock()
	if r := p.report(time.Now()); r.Drained {
		t.Fatal("drained with a batch in flight")
	}
	pool.answered(p, answer{verdict: stored, base: 100, appendTime: -1}, time.Now())
	if r := p.report(time.Now()); !r.Drained || r.DestinationOffset != 103 || r.SourceEpoch.LeaderEpoch != 7 {
		t.Errorf("drained %v, destination offset %d, leader epoch %d", r.Drained, r.DestinationOffset, r.SourceEpoch.LeaderEpoch)
	}
}

// The broker may be led to a higher epoch of our own identity, step by step. Of a mirrored producer it is not: a refusal
// that repeats has to end in FAILED.
func TestR14_ARefusedEpochOfAMirroredProducerIsNoProgress(t *testing.T) {
	p := testPart(true)
	p.pipe.own.ProducerID = p.ownID(0)
	refusal := readAnswer(kafka.ProduceResult{Err: kerr.InvalidProducerEpoch})
	p.look.tries = 5
	p.note(&write{owner: producer{id: mirror.MirroredProducerIDs + 7}}, refusal)
	if p.look.tries != 5 || p.blind != 0 {
		t.Errorf("after the refusal of a mirrored producer: %d tries, epoch %d; want 5 and 0", p.look.tries, p.blind)
	}
	p.note(&write{owner: producer{id: p.ownID(0)}}, refusal)
	if p.look.tries != 0 || p.blind != 1 {
		t.Errorf("after the refusal of our own identity: %d tries, epoch %d; want 0 and 1", p.look.tries, p.blind)
	}
}

func TestR14_VerificationThatIsOnIsNamed(t *testing.T) {
	a := readAnswer(kafka.ProduceResult{Err: kerr.InvalidProducerIDMapping})
	if a.verdict != hopeless || mirror.KindOf(a.err) != mirror.Refused || !strings.Contains(a.err.Error(), "transaction.partition.verification.enable=false") {
		t.Errorf("verdict %d of kind %v: %v", a.verdict, mirror.KindOf(a.err), a.err)
	}
}
