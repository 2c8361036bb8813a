package fetcher

import (
	"encoding/binary"
	"hash/crc32"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// seal makes a batch's CRC right.
func seal(b recordbatch.Batch) {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}

func testPlanner(exact bool) planner {
	return planner{codec: kafka.Codec, exact: exact, budget: newBudget(1 << 30)}
}

func identityOf(o producer, sequence int32) recordbatch.Identity {
	return recordbatch.Identity{ProducerID: o.id, ProducerEpoch: o.epoch, Sequence: sequence}
}

func testHold() *hold { return newHold(newBudget(1<<30), 0, nil) }

// testPart is a partition without a pool: enough for the pure parts.
func testPart(exact bool) *part {
	m := &mirror.Resolved{Definition: mirror.DefaultDefinition("east"), TransactionsMode: mirror.Committed, FillersMode: mirror.Markers}
	p := &part{key: mirror.Partition{Mirror: "east", TopicID: mirror.TopicID{1}}, topic: "t", target: mirror.Target{Mirror: m, Claim: 1}}
	p.plan = testPlanner(exact)
	p.pipe = pipeline{phase: probing, markers: true}
	return p
}
