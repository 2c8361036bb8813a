package recordbatch

import (
	"errors"
	"io"
)

// Reader gives the records of a batch one after another, in offset order. It reads every format, control batches too;
// under LogAppendTime each record has the batch's time. It may be dropped at any record.
type Reader struct {
	w       *walker
	headers []Header
}

// Open checks the batch and its CRC and begins to read it. Errors are the codec's (wrapped), ErrInflates or ErrCorrupt.
func (b Batch) Open(c Codec) (*Reader, error) {
	w, err := b.walker(c)
	if err != nil {
		return nil, err
	}
	return &Reader{w: w}, nil
}

// Next gives the next record; io.EOF after the last one. Its Headers are valid until the call after, its bytes are views
// that stay as they are.
func (r *Reader) Next() (Record, error) {
	m, err := r.w.next()
	if err != nil {
		return Record{}, err
	}
	record, ok := decodeFields(m.fields, r.headers)
	if !ok {
		return record, corrupt("record at offset %d cannot be read", m.offset)
	}
	r.headers, record.Offset, record.Timestamp = record.Headers, m.offset, m.timestamp
	return record, nil
}

// Records gives each record of the batch to each and stops at its first error. Errors are each's own, or those of Open.
//
// The Record is valid during the call only: its Headers are reused, its bytes are views.
func (b Batch) Records(c Codec, each func(Record) error) error {
	r, err := b.Open(c)
	if err != nil {
		return err
	}
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(record)
		}
		if err != nil {
			return err
		}
	}
}
