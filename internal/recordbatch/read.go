package recordbatch

import "fmt"

// Records gives each record of the batch, in offset order, to each, and stops at its first error. It reads every
// format, control batches too; under LogAppendTime each record has the batch's time. The CRC is checked first. Errors
// are each's own, the codec's (wrapped), or ErrCorrupt.
//
// The Record is valid during the call only: its Headers are reused, its bytes are views.
func (b Batch) Records(c Codec, each func(Record) error) error {
	var headers []Header
	return b.walk(c, func(offset, timestamp int64, w wireRecord) error {
		r, ok := decodeFields(w.fields, headers)
		if !ok {
			return corrupt("record at offset %d cannot be read", offset)
		}
		headers, r.Offset, r.Timestamp = r.Headers, offset, timestamp
		return each(r)
	})
}

// walk gives each record with its absolute offset and its time as a consumer sees them.
func (b Batch) walk(c Codec, each func(offset, timestamp int64, w wireRecord) error) error {
	if err := b.Validate(); err != nil {
		return err
	}
	if err := b.CheckCRC(); err != nil {
		return err
	}
	if b.old() {
		return walkMessage(b, c, each)
	}
	payload := []byte(b[headerSize:])
	if codec := b.Codec(); codec != CodecNone && b.Count() > 0 {
		var err error
		if payload, err = c.Decompress(codec, payload); err != nil {
			return fmt.Errorf("decompress batch at offset %d: %w", b.BaseOffset(), err)
		}
	}
	return b.walkPayload(payload, each)
}

// walkPayload walks the decompressed records. Offsets must rise and stay within the batch.
func (b Batch) walkPayload(payload []byte, each func(offset, timestamp int64, w wireRecord) error) error {
	base, first, previous := b.BaseOffset(), b.FirstTimestamp(), int64(-1)
	appendTime, last := b.IsLogAppendTime(), int64(b.LastOffsetDelta())
	for range b.Count() {
		w, rest, ok := nextRecord(payload)
		if !ok || w.offsetDelta <= previous || w.offsetDelta > last {
			return corrupt("record after offset %d cannot be read", base+previous)
		}
		timestamp := first + w.timestampDelta
		if appendTime {
			timestamp = b.MaxTimestamp()
		}
		if err := each(base+w.offsetDelta, timestamp, w); err != nil {
			return err
		}
		payload, previous = rest, w.offsetDelta
	}
	if len(payload) != 0 {
		return corrupt("%d bytes follow the last record at offset %d", len(payload), base+previous)
	}
	return nil
}
