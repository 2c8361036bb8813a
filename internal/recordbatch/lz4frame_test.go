package recordbatch

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Messages of magic 0 come with a header checksum that spans the frame's magic number, too.
func TestOldestLZ4IsMended(t *testing.T) {
	inner := []Record{{Offset: 40, Timestamp: -1, Value: []byte("a")}, {Offset: 41, Timestamp: -1, Key: []byte("k")}}
	var set []byte
	for _, r := range inner {
		set = append(set, oldMessage(0, 0, r)...)
	}
	proper := must(codec.Compress(CodecLZ4, set))
	end := atLZ4Flags + 2
	if proper[atLZ4Flags]&lz4HasSize != 0 {
		end += 8
	}
	broken := bytes.Clone(proper)
	if broken[end] = byte(xxh32(proper[:end]) >> 8); broken[end] == proper[end] {
		t.Fatal("both checksums are the same here")
	}
	if _, err := codec.Decompress(CodecLZ4, broken); err == nil {
		t.Fatal("the codec itself takes the checksum")
	}
	if !bytes.Equal(mendLZ4(broken), proper) {
		t.Errorf("mended header % x, want % x", mendLZ4(broken)[:end+1], proper[:end+1])
	}
	for name, payload := range map[string][]byte{"as Kafka wrote it": broken, "as it ought to be": proper} {
		before := bytes.Clone(payload)
		runs, err := oldMessage(0, CodecLZ4, Record{Offset: 41, Value: payload}).Recode(codec, 0, 100)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantSame(t, gather(t, runs), inner)
		if !bytes.Equal(payload, before) {
			t.Errorf("%s: the payload was changed", name)
		}
	}
}

func TestMendLZ4LeavesOthersAlone(t *testing.T) {
	frame := binary.LittleEndian.AppendUint32(nil, lz4Magic)
	for _, p := range [][]byte{nil, {1, 2, 3}, frame, append(frame, 0), append(frame, lz4HasSize|lz4HasDictionary, 0, 0, 0), []byte("no frame at all")} {
		if got := mendLZ4(p); !bytes.Equal(got, p) {
			t.Errorf("% x became % x", p, got)
		}
	}
}
