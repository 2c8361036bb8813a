package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"mirrord/internal/kafka"
	"mirrord/internal/recordbatch"
)

// Export writes the records in [from, to) of one partition as JSON lines, in the format that the package comment
// describes, and gives their number. to < 0: up to the high watermark. Records of aborted transactions are left out,
// those of open ones are not. Offsets below the log start are left out silently: they are gone.
func Export(ctx context.Context, c *kafka.Cluster, tp kafka.TP, from, to int64, w io.Writer) (records int64, err error) {
	return export(ctx, clusterSide{c}, kafka.Codec, tp, [2]int64{from, to}, w)
}

func export(ctx context.Context, from side, codec recordbatch.Codec, tp kafka.TP, span [2]int64, w io.Writer) (records int64, err error) {
	b := from.bounds(ctx, []kafka.TP{tp})[tp]
	if b.err != nil {
		return 0, fmt.Errorf("export %s: %w", tp, b.err)
	}
	begin, end := max(span[0], b.start), b.hw
	if span[1] >= 0 {
		end = min(end, span[1])
	}
	s := &stream{side: from, tp: tp, codec: codec, decided: b.lso, end: end, maxBytes: 1 << 20, from: begin, next: begin}
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for {
		i, err := s.peek(ctx)
		if err != nil {
			return records, fmt.Errorf("export %s: %w", tp, err)
		}
		if i == nil {
			return records, out.Flush()
		}
		if i.visible() {
			if err := lines.Encode(newLine(i.Record)); err != nil {
				return records, fmt.Errorf("export %s: %w", tp, err)
			}
			records++
		}
		s.take()
	}
}

// line is one record of an export.
type line struct {
	Offset    int64      `json:"offset"`
	Timestamp int64      `json:"timestamp"`
	Key       text       `json:"key,omitempty"`
	KeyBin    []byte     `json:"keyBase64,omitempty"`
	Value     text       `json:"value,omitempty"`
	ValueBin  []byte     `json:"valueBase64,omitempty"`
	Headers   []lineHead `json:"headers"`
}

type lineHead struct {
	Key      text   `json:"key,omitempty"`
	KeyBin   []byte `json:"keyBase64,omitempty"`
	Value    text   `json:"value,omitempty"`
	ValueBin []byte `json:"valueBase64,omitempty"`
}

// text is UTF-8 (a pointer to a string), null (a pointer to nil), or left out (nil) where the bytes are not UTF-8.
type text **string

// newText splits bytes into the two forms.
func newText(b []byte) (text, []byte) {
	var s *string
	switch {
	case b == nil:
		return &s, nil
	case !utf8.Valid(b):
		return nil, b
	}
	s = new(string(b))
	return &s, nil
}

func newLine(r recordbatch.Record) line {
	l := line{Offset: r.Offset, Timestamp: r.Timestamp, Headers: make([]lineHead, 0, len(r.Headers))}
	l.Key, l.KeyBin = newText(r.Key)
	l.Value, l.ValueBin = newText(r.Value)
	for _, h := range r.Headers {
		var head lineHead
		head.Key, head.KeyBin = newText(h.Key)
		head.Value, head.ValueBin = newText(h.Value)
		l.Headers = append(l.Headers, head)
	}
	return l
}
