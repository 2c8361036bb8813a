package recordbatch

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// FuzzBytes runs everything on bytes from outside. Nothing may panic, and what is read as valid keeps the laws: Patch
// and Recode keep the records, a joined batch reads like its sources.
func FuzzBytes(f *testing.F) {
	f.Add([]byte(must(Build(nil, CodecNone, tenRecords(0, 5)...))), true)
	f.Add([]byte(must(Build(codec, CodecSnappy, Record{Offset: 5}, Record{Offset: 9, Key: []byte{}}))), true)
	f.Add([]byte(must(Filler(codec, 20, 5))), true)
	f.Add([]byte(marker(controlAbort, 3)), true)
	f.Add([]byte(oldMessage(0, 0, Record{Offset: 3, Value: []byte("v")})), true)
	f.Add([]byte(wrap(1, 0, 43, 3, Record{Offset: 0}, Record{Offset: 2})), true)
	f.Add([]byte(wrap(0, 0, 43, 3, Record{Offset: 40}, Record{Offset: 43})), false)
	small := testCodec{64, 1 << 20} // nearly everything compressed comes in pieces
	f.Fuzz(func(t *testing.T, p []byte, mend bool) {
		for rest := append([]byte{}, p...); ; {
			var b Batch
			var err error
			if b, rest, err = Cut(rest); err != nil {
				return
			}
			if mend { // so that the fuzzer gets past the checksum
				mendCRC(b)
			}
			fuzzBatch(t, small, b)
		}
	})
}

func mendCRC(b Batch) {
	if b.old() {
		binary.BigEndian.PutUint32(b[atMessageCRC:], crc32.ChecksumIEEE(b[atMagic:]))
		return
	}
	b.writeCRC()
}

func fuzzBatch(t *testing.T, c Codec, b Batch) {
	_, _ = b.Marker(c)
	_ = IsFiller(b, c)
	var all []Record
	readable := b.Records(c, func(r Record) error { all = append(all, clone(r)); return nil }) == nil
	if readable && !b.IsControl() {
		runs, err := b.Recode(c, 0, maxOffset+1)
		if err != nil {
			t.Fatalf("readable but not recoded: %v", err)
		}
		wantSame(t, gather(t, runs), all)
	}
	var j Joiner
	j.Reset(1 << 20)
	if j.Add(b) && readable {
		wantSame(t, shifted(collect(t, j.Bytes()), b.BaseOffset()), all)
	}
	if b.old() {
		return
	}
	damaged, base := b.CheckCRC() != nil, b.BaseOffset()
	b.Patch(Identity{1 << 62, 1, 2}, false)
	if (b.CheckCRC() != nil) != damaged {
		t.Fatal("patch changed whether the checksum fits")
	}
	if readable {
		wantSame(t, shifted(collect(t, b), base), all)
	}
}
