package recordbatch

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// builder encodes one batch of consecutive or rising offsets. The zero value is empty.
type builder struct {
	buf       []byte // room for the header, then the records
	base      int64  // offset of the first record
	last      int64  // offset of the last record
	firstTime int64
	maxTime   int64
	count     int32
}

// reset empties the builder and keeps its buffer.
func (w *builder) reset() { *w = builder{buf: w.buf[:0]} }

// add appends a record; offsets must rise.
func (w *builder) add(offset, timestamp int64, attributes byte, fields []byte) {
	if w.count == 0 {
		w.begin(offset, timestamp)
	}
	w.append(offset, timestamp, attributes, fields)
}

// append is add after begin.
func (w *builder) append(offset, timestamp int64, attributes byte, fields []byte) {
	w.buf = appendRecord(w.buf, wireRecord{attributes, timestamp - w.firstTime, offset - w.base, fields})
	w.last, w.maxTime, w.count = offset, max(w.maxTime, timestamp), w.count+1
}

func (w *builder) begin(offset, timestamp int64) {
	w.buf = slices.Grow(w.buf[:0], headerSize)[:headerSize]
	w.base, w.last, w.firstTime, w.maxTime, w.count = offset, offset, timestamp, timestamp, 0
}

// appendRecord encodes a record, its length first.
func appendRecord(p []byte, r wireRecord) []byte {
	size := 1 + varintSize(r.timestampDelta) + varintSize(r.offsetDelta) + len(r.fields)
	p = appendVarint(p, int64(size))
	p = append(p, r.attributes)
	p = appendVarint(p, r.timestampDelta)
	p = appendVarint(p, r.offsetDelta)
	return append(p, r.fields...)
}

// finish writes the header into the buffer and gives the batch: base offset 0, no identity, attributes as told. The
// batch is the builder's buffer unless it had to be compressed.
func (w *builder) finish(c Codec, attributes uint16) (Batch, error) {
	b := Batch(w.buf)
	if codec := uint8(attributes & codecMask); codec != CodecNone {
		payload, err := c.Compress(codec, w.buf[headerSize:])
		if err != nil {
			return nil, fmt.Errorf("compress batch: %w", err)
		}
		b = append(make(Batch, headerSize, headerSize+len(payload)), payload...)
	}
	w.header(b, attributes)
	return b, nil
}

func (w *builder) header(b Batch, attributes uint16) {
	binary.BigEndian.PutUint64(b, 0)
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-entryHead))
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], ^uint32(0))
	b[atMagic] = magicRecordBatch
	binary.BigEndian.PutUint16(b[atAttributes:], attributes)
	binary.BigEndian.PutUint32(b[atLastOffsetDelta:], uint32(w.last-w.base))
	binary.BigEndian.PutUint64(b[atFirstTimestamp:], uint64(w.firstTime))
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(w.maxTime))
	binary.BigEndian.PutUint64(b[atProducerID:], ^uint64(0))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], ^uint16(0))
	binary.BigEndian.PutUint32(b[atBaseSequence:], ^uint32(0))
	binary.BigEndian.PutUint32(b[atCount:], uint32(w.count))
	b.writeCRC()
}

// Build encodes records of rising offsets into one batch at the first one's offset, compressed by codec, without
// identity. c may be nil for CodecNone.
func Build(c Codec, codec uint8, records ...Record) (Batch, error) {
	if len(records) == 0 {
		return nil, fmt.Errorf("build batch: no records")
	}
	var w builder
	var fields []byte
	for i, r := range records {
		if i > 0 && r.Offset <= w.last {
			return nil, fmt.Errorf("build batch: offset %d follows %d", r.Offset, w.last)
		}
		fields = appendFields(fields[:0], r)
		w.add(r.Offset, r.Timestamp, 0, fields)
	}
	b, err := w.finish(c, uint16(codec))
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint64(b, uint64(records[0].Offset))
	return b, nil
}
