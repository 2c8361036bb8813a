package recordbatch

import (
	"errors"
	"fmt"
	"io"
)

// What a compressed payload may come to. Kafka itself sets no bound: a few kilobytes may hold gigabytes. A payload
// beyond the codec's own small bound is never held whole: it passes through a window.
const (
	MaxRecord   = 64 << 20 // one record, and all of a compressed message of format 0 or 1
	MaxInflated = 1 << 30  // one batch
	windowSize  = 256 << 10
	maxVarint32 = 5
)

var (
	// ErrLarge is what Codec.Decompress answers when a payload is to be inflated piece by piece.
	ErrLarge = errors.New("payload is too large to be decompressed at once")
	// ErrInflates is the cause of every error about a payload beyond MaxRecord or MaxInflated.
	ErrInflates = errors.New("compressed batch inflates beyond the limit")
)

// walker gives the records of a batch one after another. What it gave stays valid.
type walker struct {
	batch    Batch
	payload  []byte    // what is left of the payload, or of the window
	more     io.Reader // the rest of the payload; nil: there is no more
	inflated int64
	left     int32 // records still to come
	previous int64 // offset delta of the last one
	messages []walked
}

// walked is a record of an old format, opened.
type walked struct {
	offset, timestamp int64
	wireRecord
}

// walker checks the batch and its CRC and opens the payload.
func (b Batch) walker(c Codec) (*walker, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if err := b.CheckCRC(); err != nil {
		return nil, err
	}
	w := &walker{batch: b, previous: -1}
	if b.old() {
		return w, walkMessage(b, c, func(offset, timestamp int64, r wireRecord) error {
			w.messages = append(w.messages, walked{offset, timestamp, r})
			return nil
		})
	}
	w.payload, w.left = b[headerSize:], b.Count()
	if codec := b.Codec(); codec != CodecNone && w.left > 0 {
		return w, w.inflate(c, codec)
	}
	return w, nil
}

func (w *walker) inflate(c Codec, codec uint8) (err error) {
	src := w.payload
	if w.payload, err = c.Decompress(codec, src); errors.Is(err, ErrLarge) {
		w.payload = nil
		w.more, err = c.Inflate(codec, src)
	}
	if err != nil {
		return fmt.Errorf("decompress batch at offset %d: %w", w.batch.BaseOffset(), err)
	}
	return nil
}

// next gives a record with its absolute offset and its time as a consumer sees them; io.EOF after the last one.
func (w *walker) next() (walked, error) {
	if w.batch.old() {
		return w.nextMessage()
	}
	if w.left == 0 {
		return walked{}, w.ended()
	}
	base := w.batch.BaseOffset()
	r, err := w.nextRecord()
	if err == nil && (r.offsetDelta <= w.previous || r.offsetDelta > int64(w.batch.LastOffsetDelta())) {
		err = corrupt("record after offset %d cannot be read", base+w.previous)
	}
	if err != nil {
		return walked{}, err
	}
	w.left, w.previous = w.left-1, r.offsetDelta
	timestamp := w.batch.FirstTimestamp() + r.timestampDelta
	if w.batch.IsLogAppendTime() {
		timestamp = w.batch.MaxTimestamp()
	}
	return walked{base + r.offsetDelta, timestamp, r}, nil
}

func (w *walker) nextMessage() (walked, error) {
	if len(w.messages) == 0 {
		return walked{}, io.EOF
	}
	m := w.messages[0]
	w.messages = w.messages[1:]
	return m, nil
}

func (w *walker) nextRecord() (wireRecord, error) {
	for {
		r, rest, ok := nextRecord(w.payload)
		if ok {
			w.payload = rest
			return r, nil
		}
		if w.more == nil {
			return r, corrupt("record after offset %d cannot be read", w.batch.BaseOffset()+w.previous)
		}
		if err := w.read(); err != nil {
			return r, err
		}
	}
}

// read gets on with the payload, at least to the end of the next record. What was left over goes to a new window, since
// records that were given are views of the old one.
func (w *walker) read() error {
	after := w.batch.BaseOffset() + w.previous
	size, n := varint32(w.payload)
	need := n + int(size)
	switch {
	case n == 0 && len(w.payload) < maxVarint32:
		need = 0
	case n == 0, size < 0, len(w.payload) >= need:
		return corrupt("record after offset %d cannot be read", after)
	case size > MaxRecord:
		return fmt.Errorf("%w of %d bytes: the record after offset %d has %d", ErrInflates, MaxRecord, after, size)
	}
	window := make([]byte, max(windowSize, need))
	kept := copy(window, w.payload)
	got, err := io.ReadFull(w.more, window[kept:])
	w.payload, w.inflated = window[:kept+got], w.inflated+int64(got)
	switch {
	case w.inflated > MaxInflated:
		return fmt.Errorf("%w of %d bytes at offset %d", ErrInflates, int64(MaxInflated), w.batch.BaseOffset())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		w.more = nil
	case err != nil:
		return fmt.Errorf("decompress batch at offset %d: %w", w.batch.BaseOffset(), err)
	}
	return nil
}

// ended demands that nothing follows the last record.
func (w *walker) ended() error {
	if w.more != nil && len(w.payload) == 0 {
		if err := w.read(); err != nil {
			return err
		}
	}
	if len(w.payload) != 0 {
		return corrupt("%d bytes or more follow the last record at offset %d", len(w.payload), w.batch.BaseOffset()+w.previous)
	}
	return io.EOF
}
