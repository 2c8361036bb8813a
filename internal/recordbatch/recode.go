package recordbatch

import (
	"errors"
	"io"
)

// maxRun bounds what a run holds before it is compressed: a small batch may inflate to very much.
const maxRun = 16 << 20

// Run is a stretch of consecutive offsets, encoded again: Count records from offset Base. Its Batch has base offset 0,
// no identity, and passes AsIs.
type Run struct {
	Base         int64
	Count        int32
	Batch        Batch
	MaxTimestamp int64
}

// NextOffset is the offset after the run.
func (r Run) NextOffset() int64 { return r.Base + int64(r.Count) }

// Recode encodes the records in [from, to) again, for batches that cannot pass as they are: holes inside, straddling
// the log end (protocol R5), LogAppendTime, format 0 or 1. There is one Run per stretch of consecutive offsets, or several
// where it inflates to more than maxRun; between stretches lie holes. Compression, the transactional flag and a delete
// horizon stay; the time type becomes CreateTime with each record's time as a consumer sees it. The source's CRC is
// checked. A control batch is refused: its offset is filled, not copied.
func (b Batch) Recode(c Codec, from, to int64) ([]Run, error) {
	if b.IsControl() {
		return nil, corrupt("control batch at offset %d where data is wanted", b.BaseOffset())
	}
	attributes := b.Attributes() & (codecMask | transactional | deleteHorizon)
	if b.old() {
		attributes &= codecMask
	}
	var runs []Run
	var w builder
	flush := func() error {
		if w.count == 0 {
			return nil
		}
		batch, err := w.finish(c, attributes)
		if err != nil {
			return err
		}
		runs = append(runs, Run{Base: w.base, Count: w.count, Batch: batch, MaxTimestamp: w.maxTime})
		if attributes&codecMask == uint16(CodecNone) {
			w.buf = nil // the batch has it now
		}
		w.reset()
		return nil
	}
	walk, err := b.walker(c)
	if err != nil {
		return nil, err
	}
	for {
		r, err := walk.next()
		if errors.Is(err, io.EOF) {
			return runs, flush()
		}
		if err != nil {
			return nil, err
		}
		if r.offset < from || r.offset >= to {
			continue
		}
		if _, ok := decodeFields(r.fields, nil); !ok {
			return nil, corrupt("record at offset %d cannot be read", r.offset)
		}
		if w.count > 0 && (r.offset != w.last+1 || len(w.buf)+len(r.fields) > maxRun && b.Codec() != CodecNone) {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		if w.count == 0 {
			w.begin(r.offset, r.timestamp)
			if attributes&deleteHorizon != 0 {
				w.firstTime = b.FirstTimestamp()
			}
		}
		w.append(r.offset, r.timestamp, r.attributes, r.fields)
	}
}
