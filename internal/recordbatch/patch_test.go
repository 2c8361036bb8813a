package recordbatch

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawIdentity(t *rapid.T) Identity {
	return Identity{rapid.Int64().Draw(t, "id"), rapid.Int16().Draw(t, "epoch"), rapid.Int32().Draw(t, "sequence")}
}

func TestPatchKeepsRecordsAndChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records, id := drawRecords(t, 77, 1), drawIdentity(t)
		b := must(Build(codec, rapid.Uint8Range(0, 4).Draw(t, "codec"), records...))
		keep := rapid.Bool().Draw(t, "keep")
		b = setAttributes(b, b.Attributes()|transactional|deleteHorizon)
		b.Patch(id, keep)
		if got := (Identity{b.ProducerID(), b.ProducerEpoch(), b.BaseSequence()}); got != id {
			t.Fatalf("identity is %v, want %v", got, id)
		}
		if b.BaseOffset() != 0 || b.LeaderEpoch() != -1 || b.IsTransactional() != keep {
			t.Fatalf("header: offset %d, leader epoch %d, transactional %v", b.BaseOffset(), b.LeaderEpoch(), b.IsTransactional())
		}
		wantSame(t, collect(t, b), shifted(records, -77)) // checks the CRC
	})
}

// The rule behind SPEC §8.1: damage done before the patch is still found after it.
func TestPatchKeepsDamageVisible(t *testing.T) {
	whole := must(Build(nil, CodecNone, tenRecords(0, 20)...))
	for i := atCRC; i < len(whole); i++ {
		b := slices.Clone(whole)
		b[i] ^= 0x04
		b.Patch(Identity{1 << 62, 3, 99}, i&1 == 0)
		if err := b.CheckCRC(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("damage in byte %d is hidden: %v", i, err)
		}
	}
}

func TestPatchAllocatesNothing(t *testing.T) {
	b := must(Build(nil, CodecNone, tenRecords(0, 100)...))
	if n := testing.AllocsPerRun(100, func() { b.Patch(Identity{1 << 62, 0, 7}, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// advance by n bytes is n times advance by one.
func TestAdvanceAgreesWithSteps(t *testing.T) {
	register := uint32(0xdeadbeef)
	for n := range 70_000 {
		if n%997 == 0 && advance(0xdeadbeef, n) != register {
			t.Fatalf("advance over %d bytes", n)
		}
		register = castagnoli[byte(register)] ^ register>>8
	}
	for _, n := range []int{1 << 16, 1 << 24, 1<<30 + 12345} {
		if advance(advance(1, n), n) != advance(1, 2*n) {
			t.Errorf("advance over %d bytes twice", n)
		}
	}
}

func BenchmarkPatch(b *testing.B) {
	for _, size := range []int{100, 1_000, 46_000} {
		batch := benchBatch(b, size)
		b.Run(fmt.Sprint(len(batch)), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(batch)))
			for i := range b.N {
				batch.Patch(Identity{1 << 62, 0, int32(i)}, false)
			}
		})
	}
}
