package fetcher

import (
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// place is the resume point at a log end; p.mu is held.
func (p *part) place(at kafka.ResumePoint) place {
	pl := place{end: at.LogEnd, careful: p.look.cause.marker}
	var coordinator int32
	pl.own, p.ownKnown, coordinator = p.identity(at.Producers)
	var highest int32
	pl.others, highest = counters(at.Producers)
	pl.open = openMirrored(at.Producers)
	coordinator = max(coordinator, highest)
	// Protocol R11: the claim in the high bits, the attempt in the low ones; only a marker in doubt makes a new attempt.
	p.coordinator = max(p.coordinator, p.target.Claim<<attemptBits, coordinator)
	if p.look.cause.marker {
		p.coordinator++
	}
	return pl
}

const attemptBits = 11

// identity is under what the next own batch goes (protocol R1, R2), whether the broker knows the id, and the highest
// coordinator epoch that it knows of it.
func (p *part) identity(producers []kafka.Producer) (own recordbatch.Identity, known bool, coordinator int32) {
	own.ProducerID, coordinator = p.ownID(0), -1
	for g := range generations {
		id := p.ownID(g)
		for _, pr := range producers {
			if pr.ID == id {
				own = recordbatch.Identity{ProducerID: id, ProducerEpoch: pr.Epoch, Sequence: nextSequence(pr.LastSequence)}
				known, coordinator = true, pr.CoordinatorEpoch
				if pr.Epoch >= lastEpoch { // used up: the next id (protocol R10)
					own, known, coordinator = recordbatch.Identity{ProducerID: p.ownID(g + 1)}, false, -1
				}
			}
		}
	}
	if !known && p.blind > 0 { // the broker has refused sequence 0 of an id that it does not list: a higher epoch begins at 0
		own.ProducerEpoch = p.blind
	}
	return own, known, coordinator
}

const (
	generations = 8      // of ids that are looked for
	lastEpoch   = 32_700 // near the largest producer epoch
)

func (p *part) ownID(generation int) int64 {
	for len(p.ids) <= generation {
		p.ids = append(p.ids, mirror.IdentityID(p.key.Mirror, p.key.TopicID, int32(len(p.ids))))
	}
	return p.ids[generation]
}

// nextSequence follows the last one; −1 (none) is followed by 0.
func nextSequence(last int32) int32 { return int32((int64(last) + 1) & 0x7fffffff) }

// counters are the places of the shifted ids of mirrored transactions, and their highest coordinator epoch.
func counters(producers []kafka.Producer) (m map[int64]counter, coordinator int32) {
	m, coordinator = map[int64]counter{}, -1
	for _, pr := range producers {
		if mirror.MirroredProducer(pr.ID) {
			m[pr.ID] = counter{pr.Epoch, nextSequence(pr.LastSequence)}
			coordinator = max(coordinator, pr.CoordinatorEpoch)
		}
	}
	return m, coordinator
}
