package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// testCodec is franz-go's. What is larger than small comes piece by piece, and nothing is larger than limit, for fuzzing.
type testCodec struct{ small, limit int }

var codec Codec = testCodec{4 << 20, 64 << 20}

func (c testCodec) Decompress(codec uint8, src []byte) ([]byte, error) {
	out, err := c.all(codec, src)
	if len(out) > c.small {
		return nil, ErrLarge
	}
	return out, err
}

func (c testCodec) Inflate(codec uint8, src []byte) (io.Reader, error) {
	out, err := c.all(codec, src)
	return iotest.HalfReader(bytes.NewReader(out)), err
}

func (c testCodec) all(codec uint8, src []byte) ([]byte, error) {
	out, err := kgo.DefaultDecompressor().Decompress(src, kgo.CompressionCodecType(codec))
	if len(out) > c.limit {
		return nil, errors.New("too large")
	}
	return slices.Clone(out), err
}

func (testCodec) Compress(codec uint8, src []byte) ([]byte, error) {
	var by kgo.CompressionCodec
	switch codec {
	case CodecGzip:
		by = kgo.GzipCompression()
	case CodecSnappy:
		by = kgo.SnappyCompression()
	case CodecLZ4:
		by = kgo.Lz4Compression()
	case CodecZstd:
		by = kgo.ZstdCompression()
	}
	c, err := kgo.DefaultCompressor(by)
	if err != nil {
		return nil, err
	}
	out, _ := c.Compress(new(bytes.Buffer), src)
	return slices.Clone(out), nil
}

// clone copies what Records lends.
func clone(r Record) Record {
	r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	headers := []Header(nil)
	for _, h := range r.Headers {
		headers = append(headers, Header{bytes.Clone(h.Key), bytes.Clone(h.Value)})
	}
	r.Headers = headers
	return r
}

func collect(t require, b Batch) (all []Record) {
	t.Helper()
	if err := b.Records(codec, func(r Record) error { all = append(all, clone(r)); return nil }); err != nil {
		t.Fatalf("records: %v", err)
	}
	return all
}

type require interface {
	Helper()
	Fatalf(string, ...any)
}

func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func same(a, b Record) bool {
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && sameBytes(a.Key, b.Key) && sameBytes(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(a, b Header) bool {
			return bytes.Equal(a.Key, b.Key) && sameBytes(a.Value, b.Value)
		})
}

func wantSame(t require, got, want []Record) {
	t.Helper()
	if !slices.EqualFunc(got, want, same) {
		t.Fatalf("records differ:\n got %v\nwant %v", got, want)
	}
}

// shifted are the records at other offsets.
func shifted(records []Record, by int64) []Record {
	out := slices.Clone(records)
	for i := range out {
		out[i].Offset += by
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var nullableBytes = rapid.Custom(func(t *rapid.T) []byte {
	if rapid.IntRange(0, 3).Draw(t, "null") == 0 {
		return nil
	}
	return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")...)
})

// drawRecords draws records of rising offsets from base; step is the largest distance between two.
func drawRecords(t *rapid.T, base int64, step int) (records []Record) {
	offset := base
	time := rapid.Int64Range(-1, 1<<42).Draw(t, "time")
	for range rapid.IntRange(1, 12).Draw(t, "count") {
		r := Record{Offset: offset, Key: nullableBytes.Draw(t, "key"), Value: nullableBytes.Draw(t, "value")}
		r.Timestamp = max(-1, time+rapid.Int64Range(-100_000, 100_000).Draw(t, "delta"))
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			key := append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "name")...)
			r.Headers = append(r.Headers, Header{key, nullableBytes.Draw(t, "header")})
		}
		records = append(records, r)
		offset += int64(rapid.IntRange(1, step).Draw(t, "step"))
	}
	return records
}

// setAttributes changes flags and makes the CRC fit: what another producer or a broker would have written.
func setAttributes(b Batch, flags uint16) Batch {
	binary.BigEndian.PutUint16(b[atAttributes:], flags)
	b.writeCRC()
	return b
}

// oldMessage encodes a message of format 0 or 1.
func oldMessage(magic int8, attributes byte, r Record) Batch {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.Offset))
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, byte(magic), attributes)
	if magic == 1 {
		b = binary.BigEndian.AppendUint64(b, uint64(r.Timestamp))
	}
	for _, field := range [][]byte{r.Key, r.Value} {
		if field == nil {
			b = append(b, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(field)))
		b = append(b, field...)
	}
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-entryHead))
	binary.BigEndian.PutUint32(b[atMessageCRC:], crc32.ChecksumIEEE(b[atMagic:]))
	return Batch(b)
}

func tenRecords(base int64, size int) (records []Record) {
	for i := range 10 {
		records = append(records, Record{
			Offset: base + int64(i), Timestamp: 1_700_000_000_000 + base + int64(i),
			Key: []byte("key"), Value: bytes.Repeat([]byte{'v'}, size),
		})
	}
	return records
}

func benchBatch(b *testing.B, size int) Batch {
	b.Helper()
	return must(Build(nil, CodecNone, tenRecords(0, size)...))
}
