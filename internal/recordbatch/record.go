package recordbatch

// Record is one record as a consumer sees it. Byte slices are views: of the batch, or of the buffer that its payload
// was decompressed into.
type Record struct {
	Offset    int64
	Timestamp int64  // ms since the epoch; −1: none
	Key       []byte // nil: null
	Value     []byte // nil: null
	Headers   []Header
}

// Header is one header of a record. Keys may repeat and are never null.
type Header struct {
	Key   []byte
	Value []byte // nil: null
}

// wireRecord is a record whose key, value and headers are left as encoded.
type wireRecord struct {
	attributes     byte
	timestampDelta int64
	offsetDelta    int64
	fields         []byte
}

// nextRecord takes the next record off an uncompressed payload. ok is false if there is no whole one.
func nextRecord(p []byte) (r wireRecord, rest []byte, ok bool) {
	size, n := varint32(p)
	if n == 0 || size < minRecordSize-1 || int(size) > len(p)-n {
		return r, p, false
	}
	body, rest := p[n:n+int(size)], p[n+int(size):]
	r.attributes = body[0]
	body = body[1:]
	if r.timestampDelta, n = varint(body); n == 0 {
		return r, p, false
	}
	body = body[n:]
	offset, n := varint32(body)
	if n == 0 {
		return r, p, false
	}
	r.offsetDelta, r.fields = int64(offset), body[n:]
	return r, rest, true
}

// decodeFields reads key, value and headers. Headers are appended to headers[:0], so that a caller may reuse them.
func decodeFields(p []byte, headers []Header) (r Record, ok bool) {
	if r.Key, p, ok = nullable(p); !ok {
		return r, false
	}
	if r.Value, p, ok = nullable(p); !ok {
		return r, false
	}
	count, n := varint32(p)
	if n == 0 || count < 0 || int(count) > (len(p)-n)/2 { // a header has at least two bytes
		return r, false
	}
	p, r.Headers = p[n:], headers[:0]
	for range count {
		var h Header
		if h.Key, p, ok = nullable(p); !ok || h.Key == nil {
			return r, false
		}
		if h.Value, p, ok = nullable(p); !ok {
			return r, false
		}
		r.Headers = append(r.Headers, h)
	}
	return r, len(p) == 0
}

// nullable reads bytes preceded by their length; −1 is null.
func nullable(p []byte) (value, rest []byte, ok bool) {
	size, n := varint32(p)
	if n == 0 || size < -1 || int(size) > len(p)-n {
		return nil, p, false
	}
	if size < 0 {
		return nil, p[n:], true
	}
	end := n + int(size)
	return p[n:end:end], p[end:], true
}

// appendFields encodes key, value and headers.
func appendFields(p []byte, r Record) []byte {
	p = appendNullable(p, r.Key)
	p = appendNullable(p, r.Value)
	p = appendVarint(p, int64(len(r.Headers)))
	for _, h := range r.Headers {
		p = appendVarint(p, int64(len(h.Key)))
		p = append(p, h.Key...)
		p = appendNullable(p, h.Value)
	}
	return p
}

func appendNullable(p, value []byte) []byte {
	if value == nil {
		return appendVarint(p, -1)
	}
	p = appendVarint(p, int64(len(value)))
	return append(p, value...)
}
