package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Where the fields of a v2 batch lie. Bytes from atAttributes on are covered by the CRC.
const (
	atLength          = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21
	atLastOffsetDelta = 23
	atFirstTimestamp  = 27
	atMaxTimestamp    = 35
	atProducerID      = 43
	atProducerEpoch   = 51
	atBaseSequence    = 53
	atCount           = 57
	headerSize        = 61

	entryHead     = 12 // base offset and length, which length does not count
	minRecordSize = 7  // seven fields of at least one byte
)

// Bits of the attributes.
const (
	codecMask     uint16 = 0x07
	logAppendTime uint16 = 0x08
	transactional uint16 = 0x10
	control       uint16 = 0x20
	deleteHorizon uint16 = 0x40 // the cleaner has put the time when tombstones may go into the first timestamp
)

// What fields hold where there is nothing to hold.
const (
	noTimestamp     int64 = -1
	noProducerID    int64 = -1
	noProducerEpoch int16 = -1
	noSequence      int32 = -1
	noLeaderEpoch   int32 = -1
)

// Formats, and what the length of their smallest entry is.
const (
	magicMessageV0   = 0
	magicMessageV1   = 1
	magicRecordBatch = 2

	smallestMessageV0 = 14
	smallestMessageV1 = smallestMessageV0 + 8

	maxOffset int64 = math.MaxInt64 - 1 // so that the next offset exists
)

// Compression codecs as attributes name them.
const (
	CodecNone   uint8 = 0
	CodecGzip   uint8 = 1
	CodecSnappy uint8 = 2
	CodecLZ4    uint8 = 3
	CodecZstd   uint8 = 4
)

// ErrPartial says that the bytes end inside an entry. Brokers cut a fetch answer anywhere but return its first batch
// whole, so at the first entry of an answer it means damage or a lost tail.
var ErrPartial = errors.New("record batch is cut off")

// ErrCorrupt is the cause of every error about bytes that no healthy log holds.
var ErrCorrupt = errors.New("record batch is corrupt")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// Codec compresses and decompresses payloads. codec is one of CodecGzip to CodecZstd. Results belong to the caller.
type Codec interface {
	// Decompress gives a small payload at once; a larger one is ErrLarge, before it takes memory.
	Decompress(codec uint8, src []byte) ([]byte, error)
	// Inflate gives a payload of any size piece by piece. src must not change meanwhile.
	Inflate(codec uint8, src []byte) (io.Reader, error)
	Compress(codec uint8, src []byte) ([]byte, error)
}

// Batch is exactly one entry of a log: a v2 record batch, or one message (or compressed wrapper) of magic 0 or 1. It is
// a view: whoever owns the bytes owns the batch. The methods expect what Cut, Recode, Joiner, Filler or Build gave.
type Batch []byte

// Magic is the format: 2 for record batches, 0 or 1 for messages of older formats.
func (b Batch) Magic() int8 { return int8(b[atMagic]) }

func (b Batch) old() bool { return b[atMagic] != magicRecordBatch }

// BaseOffset is the offset of the first record, whether it still exists or not. For magic 0 and 1 it is LastOffset:
// where a compressed wrapper begins is known only to its records.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b)) }

// LastOffset is the last offset that the batch covers, whether that record still exists or not.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset is the offset after the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// LastOffsetDelta is LastOffset − BaseOffset; 0 for magic 0 and 1.
func (b Batch) LastOffsetDelta() int32 {
	if b.old() {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b[atLastOffsetDelta:]))
}

// LeaderEpoch is the leader epoch under which the batch was appended; −1: unknown.
func (b Batch) LeaderEpoch() int32 {
	if b.old() {
		return noLeaderEpoch
	}
	return int32(binary.BigEndian.Uint32(b[atLeaderEpoch:]))
}

// Count is the number of records as the header tells it; 0 after compaction took them all. For magic 0 and 1 it is 1,
// also where a wrapper holds more.
func (b Batch) Count() int32 {
	if b.old() {
		return 1
	}
	return int32(binary.BigEndian.Uint32(b[atCount:]))
}

// FirstTimestamp is what the records' timestamp deltas are relative to, in ms since the epoch. It need not be the first
// record's: in batches that the cleaner has written it may be a deletion time.
func (b Batch) FirstTimestamp() int64 {
	if b.old() {
		return b.MaxTimestamp()
	}
	return int64(binary.BigEndian.Uint64(b[atFirstTimestamp:]))
}

// MaxTimestamp is the largest record timestamp, or the append time of all records under LogAppendTime, in ms since the
// epoch; −1: none.
func (b Batch) MaxTimestamp() int64 {
	switch b.Magic() {
	case magicRecordBatch:
		return int64(binary.BigEndian.Uint64(b[atMaxTimestamp:]))
	case magicMessageV1:
		return int64(binary.BigEndian.Uint64(b[atMessageTimestamp:]))
	default:
		return noTimestamp
	}
}

// ProducerID is −1 if the producer had none.
func (b Batch) ProducerID() int64 {
	if b.old() {
		return noProducerID
	}
	return int64(binary.BigEndian.Uint64(b[atProducerID:]))
}

// ProducerEpoch is −1 if the producer had none.
func (b Batch) ProducerEpoch() int16 {
	if b.old() {
		return noProducerEpoch
	}
	return int16(binary.BigEndian.Uint16(b[atProducerEpoch:]))
}

// BaseSequence is the producer's sequence of the record at BaseOffset; −1: none.
func (b Batch) BaseSequence() int32 {
	if b.old() {
		return noSequence
	}
	return int32(binary.BigEndian.Uint32(b[atBaseSequence:]))
}

// Attributes are the batch's flags as on the wire.
func (b Batch) Attributes() uint16 {
	if b.old() {
		return uint16(b[atMessageAttributes])
	}
	return binary.BigEndian.Uint16(b[atAttributes:])
}

// Codec is the compression of the payload, CodecNone to CodecZstd where the batch is valid.
func (b Batch) Codec() uint8 { return uint8(b.Attributes() & codecMask) }

// IsTransactional reports whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return !b.old() && b.Attributes()&transactional != 0 }

// IsControl reports whether the batch holds a marker instead of data.
func (b Batch) IsControl() bool { return !b.old() && b.Attributes()&control != 0 }

// IsLogAppendTime reports whether every record has the batch's MaxTimestamp as its time.
func (b Batch) IsLogAppendTime() bool {
	return b.Magic() >= magicMessageV1 && b.Attributes()&logAppendTime != 0
}

// AsIs reports whether a broker takes the batch unopened and gives each record its offset: format 2, no control batch,
// no hole inside, not empty, CreateTime.
func (b Batch) AsIs() bool {
	return b.Magic() == magicRecordBatch && b.Attributes()&(control|logAppendTime) == 0 && b.Count() > 0 &&
		b.Count()-1 == b.LastOffsetDelta()
}

// Validate checks what can be checked without opening the payload, the CRC apart: length, format, codec, and that count
// and offsets can be true together. The error is ErrCorrupt.
func (b Batch) Validate() error {
	if err := checkEntry(b); err != nil {
		return err
	}
	if len(b) != entryHead+int(binary.BigEndian.Uint32(b[atLength:])) {
		return corrupt("%d bytes do not agree with its length", len(b))
	}
	if codec := b.Codec(); codec > CodecZstd {
		return corrupt("unknown compression codec %d", codec)
	}
	if b.old() {
		return nil
	}
	count, last, payload := b.Count(), b.LastOffsetDelta(), len(b)-headerSize
	switch {
	case last < 0 || b.BaseOffset() > maxOffset-int64(last):
		return corrupt("last offset delta %d at offset %d", last, b.BaseOffset())
	case count < 0 || int64(count) > int64(last)+1:
		return corrupt("%d records in %d offsets", count, int64(last)+1)
	case count == 0 && payload > 0, b.Codec() == CodecNone && payload/minRecordSize < int(count):
		return corrupt("%d records in %d bytes", count, payload)
	}
	return nil
}
