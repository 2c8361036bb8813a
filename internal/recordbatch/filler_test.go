package recordbatch

import (
	"encoding/binary"
	"errors"
	"testing"
)

func TestR13_FillersAreSmallAndRecognised(t *testing.T) {
	for _, count := range []int32{1, 2, 1000, MaxFiller} {
		b := must(Filler(codec, count, 1_700_000_000_000))
		if !b.AsIs() || b.Count() != count || b.Validate() != nil || len(b) >= 1<<20 {
			t.Errorf("filler of %d: %d bytes, count %d", count, len(b), b.Count())
		}
		b.Patch(Identity{1 << 62, 0, 0}, false)
		if !IsFiller(b, codec) {
			t.Errorf("filler of %d is not recognised", count)
		}
		t.Logf("%d offsets: %d bytes", count, len(b))
	}
}

func TestDataIsNoFiller(t *testing.T) {
	null := []Record{{Timestamp: 5}, {Offset: 1, Timestamp: 5}}
	marked := Header{[]byte(fillerHeader), []byte(fillerVersion)}
	for name, b := range map[string]Batch{
		"uncompressed":  must(Build(codec, CodecNone, tenRecords(0, 9)...)),
		"null records":  must(Build(codec, CodecZstd, null...)),
		"a value":       must(Build(codec, CodecZstd, Record{Value: []byte("v"), Headers: []Header{marked}})),
		"another":       must(Build(codec, CodecZstd, Record{Headers: []Header{{[]byte("h"), nil}}})),
		"an old format": oldMessage(1, 0, Record{}),
	} {
		if IsFiller(b, codec) {
			t.Errorf("%s: taken for a filler", name)
		}
	}
}

// marker encodes a control batch as a transaction coordinator writes it.
func marker(kind int16, coordinatorEpoch int32) Batch {
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(kind))
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinatorEpoch))
	b := must(Build(nil, CodecNone, Record{Offset: 12, Timestamp: 34, Key: key, Value: value}))
	binary.BigEndian.PutUint64(b[atProducerID:], 77)
	binary.BigEndian.PutUint16(b[atProducerEpoch:], 3)
	return setAttributes(b, control|transactional)
}

func TestMarker(t *testing.T) {
	for _, commit := range []bool{false, true} {
		kind := int16(controlAbort)
		if commit {
			kind = controlCommit
		}
		got, err := marker(kind, 9).Marker(nil)
		want := Marker{ProducerID: 77, ProducerEpoch: 3, Commit: commit, CoordinatorEpoch: 9, Offset: 12, Timestamp: 34}
		if err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := marker(2, 0).Marker(nil); !errors.Is(err, ErrNoMarker) {
		t.Errorf("leader change: %v, want ErrNoMarker", err)
	}
	emptied := marker(controlCommit, 0)[:headerSize]
	binary.BigEndian.PutUint32(emptied[atLength:], headerSize-entryHead)
	binary.BigEndian.PutUint32(emptied[atCount:], 0)
	emptied.writeCRC()
	if _, err := emptied.Marker(nil); !errors.Is(err, ErrNoMarker) {
		t.Errorf("emptied by the cleaner: %v, want ErrNoMarker", err)
	}
	if _, err := must(Build(nil, CodecNone, Record{})).Marker(nil); !errors.Is(err, ErrNoMarker) {
		t.Errorf("data: %v, want ErrNoMarker", err)
	}
}
