package recordbatch

import "slices"

// Joiner makes one batch of many small uncompressed ones that follow each other without a hole. Records keep offset,
// timestamp, key, value, headers and order; only the batch boundaries go. The zero value needs a Reset.
type Joiner struct {
	// Plain ignores to which transaction a batch belongs and leaves the flag out: for decided data (mode "committed").
	// Otherwise transactional batches are joined only within one producer id and epoch.
	Plain bool

	w          builder
	limit      int // bytes of the joined batch
	batches    int
	attributes uint16
	producer   Identity
}

// Reset empties the joiner for a batch of at most limit bytes. Bytes that Bytes gave before are overwritten.
func (j *Joiner) Reset(limit int) {
	j.w.reset()
	j.limit, j.batches = limit, 0
}

// Count is the number of records joined so far.
func (j *Joiner) Count() int32 { return j.w.count }

// Batches is the number of batches joined so far.
func (j *Joiner) Batches() int { return j.batches }

// Base is the offset of the first record; meaningless while Count is 0.
func (j *Joiner) Base() int64 { return j.w.base }

// NextOffset is the offset that the next batch must begin at; meaningless while Count is 0.
func (j *Joiner) NextOffset() int64 { return j.w.last + 1 }

// MaxTimestamp is the largest timestamp joined so far; meaningless while Count is 0.
func (j *Joiner) MaxTimestamp() int64 { return j.w.maxTime }

// Add takes a batch in, copying its records. It reports false, and changes nothing, if the batch cannot be joined to
// what is there, would go over the limit, or is damaged: then the caller sends what was joined and passes the batch on
// by itself, where the destination refuses a damaged one.
func (j *Joiner) Add(b Batch) bool { return b.AsIs() && j.add(b.BaseOffset(), b) }

// AddRun is Add for what Recode gave.
func (j *Joiner) AddRun(r Run) bool { return r.Batch.AsIs() && j.add(r.Base, r.Batch) }

func (j *Joiner) add(base int64, b Batch) bool {
	attributes, producer := j.kind(b)
	switch {
	case b.Codec() != CodecNone || max(len(j.w.buf), headerSize)+len(b)-headerSize > j.limit:
		return false
	case j.batches > 0 && (base != j.w.last+1 || attributes != j.attributes || producer != j.producer):
		return false
	case j.batches > 0 && attributes&deleteHorizon != 0 && b.FirstTimestamp() != j.w.firstTime:
		return false
	case b.Validate() != nil || b.CheckCRC() != nil:
		return false
	}
	before := j.w
	if j.batches == 0 {
		j.w.begin(base, b.FirstTimestamp())
		j.w.maxTime = b.MaxTimestamp() // the first time may be a delete horizon
	}
	if !j.w.copyRecords(b) || len(j.w.buf) > j.limit {
		before.buf = j.w.buf[:len(before.buf)]
		j.w = before
		return false
	}
	j.batches, j.attributes, j.producer = j.batches+1, attributes, producer
	return true
}

// kind is what batches must have in common: attributes, and the producer of a transaction. A delete horizon, too: it lies
// where the first timestamp belongs.
func (j *Joiner) kind(b Batch) (attributes uint16, producer Identity) {
	attributes = b.Attributes()
	if j.Plain {
		attributes &^= transactional
	}
	if attributes&transactional != 0 {
		producer = Identity{ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch()}
	}
	return attributes, producer
}

// copyRecords appends all records of an uncompressed batch without holes, their deltas rewritten. False: not such a
// batch; the builder is then in no state to be used.
func (w *builder) copyRecords(b Batch) bool {
	count, payload := int64(b.Count()), []byte(b[headerSize:])
	shift, later := int64(w.count), b.FirstTimestamp()-w.firstTime
	out := slices.Grow(w.buf, len(payload)+int(count)*2)
	for i := range count {
		r, rest, ok := nextRecord(payload)
		if !ok || r.offsetDelta != i {
			return false
		}
		r.offsetDelta += shift
		r.timestampDelta += later
		out = appendRecord(out, r)
		payload = rest
	}
	w.buf, w.count, w.maxTime = out, w.count+int32(count), max(w.maxTime, b.MaxTimestamp())
	w.last = w.base + int64(w.count) - 1
	return len(payload) == 0
}

// Bytes gives the joined batch: base offset 0, no identity, valid until the next Reset. Nil while Count is 0.
func (j *Joiner) Bytes() Batch {
	if j.w.count == 0 {
		return nil
	}
	b := Batch(j.w.buf)
	j.w.header(b, j.attributes)
	return b
}
