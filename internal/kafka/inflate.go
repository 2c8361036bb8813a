package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"mirrord/internal/recordbatch"
)

const (
	// smallPayload is what Decompress gives at once at most: what producers make is far below.
	smallPayload = 4 << 20
	// zstdWindow is the largest window that Java's consumer reads.
	zstdWindow = 128 << 20
)

// inflater decompresses one codec. No input makes small take more than a multiple of smallPayload.
type inflater interface {
	small(src []byte) ([]byte, error)
	stream(src []byte) (io.Reader, error)
}

// restarter is a decoder that can be used again.
type restarter interface {
	io.Reader
	restart(src io.Reader) error
}

// streamed is a codec that only streams.
type streamed struct {
	fresh func() restarter
	pool  *sync.Pool // of *scratch
}

// scratch is a decoder with the buffer that it fills.
type scratch struct {
	decoder restarter
	out     bytes.Buffer
}

func newStreamed(fresh func() restarter) streamed {
	return streamed{fresh, &sync.Pool{New: func() any { return &scratch{decoder: fresh()} }}}
}

func (s streamed) small(src []byte) ([]byte, error) {
	with := s.pool.Get().(*scratch)
	defer s.pool.Put(with)
	with.out.Reset()
	if err := with.decoder.restart(bytes.NewReader(src)); err != nil {
		return nil, err
	}
	n, err := with.out.ReadFrom(io.LimitReader(with.decoder, smallPayload+1))
	switch {
	case err != nil:
		return nil, err
	case n > smallPayload:
		return nil, recordbatch.ErrLarge
	}
	return bytes.Clone(with.out.Bytes()), nil
}

func (s streamed) stream(src []byte) (io.Reader, error) {
	decoder := s.fresh()
	return decoder, decoder.restart(bytes.NewReader(src))
}

type gzipDecoder struct{ gzip.Reader }

func newGzip() restarter { return new(gzipDecoder) }

func (d *gzipDecoder) restart(src io.Reader) error { return d.Reset(src) }

type lz4Decoder struct{ *lz4.Reader }

func newLZ4() restarter { return lz4Decoder{lz4.NewReader(nil)} }

func (d lz4Decoder) restart(src io.Reader) error {
	d.Reset(src)
	return nil
}

// zstandard has one decoder for whatever is small; it may be used by many at a time.
type zstandard struct{ decoder *zstd.Decoder }

func newZstd() zstandard {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(smallPayload))
	if err != nil {
		panic(err) // the options are valid
	}
	return zstandard{d}
}

func (z zstandard) small(src []byte) ([]byte, error) {
	out, err := z.decoder.DecodeAll(src, nil)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil, recordbatch.ErrLarge
	}
	return out, err
}

// stream decodes in the caller's goroutine: a decoder that is dropped half-way leaves nothing behind.
func (zstandard) stream(src []byte) (io.Reader, error) {
	return zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
}

// snappy comes as one block, or as Java writes it: a header, then blocks, each after its length.
type snappy struct{}

const snappyHeader = 16

var (
	snappyMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}
	errSnappy   = errors.New("snappy: blocks cannot be told apart")
)

func (s snappy) small(src []byte) ([]byte, error) {
	total := 0
	err := s.blocks(src, func(_ []byte, size int) error {
		if total += size; total > smallPayload {
			return recordbatch.ErrLarge
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, total)
	return out, s.blocks(src, func(block []byte, size int) error {
		at := len(out)
		out = out[:at+size]
		_, err := s2.Decode(out[at:], block)
		return err
	})
}

// blocks gives each block and the size that it says to have decompressed.
func (snappy) blocks(src []byte, each func(block []byte, size int) error) error {
	for b := newBlocks(src); ; {
		block, size, err := b.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(block, size)
		}
		if err != nil {
			return err
		}
	}
}

func (snappy) stream(src []byte) (io.Reader, error) {
	return &snappyReader{blocks: newBlocks(src)}, nil
}

// snappyBlocks cuts a payload into blocks.
type snappyBlocks struct {
	rest   []byte
	framed bool
}

func newBlocks(src []byte) snappyBlocks {
	if len(src) > snappyHeader && bytes.HasPrefix(src, snappyMagic) {
		return snappyBlocks{src[snappyHeader:], true}
	}
	return snappyBlocks{src, false}
}

func (b *snappyBlocks) next() (block []byte, size int, err error) {
	switch {
	case len(b.rest) == 0:
		return nil, 0, io.EOF
	case !b.framed:
		block, b.rest = b.rest, nil
	case len(b.rest) < 4 || uint64(binary.BigEndian.Uint32(b.rest)) > uint64(len(b.rest)-4):
		return nil, 0, errSnappy
	default:
		end := 4 + int(binary.BigEndian.Uint32(b.rest))
		block, b.rest = b.rest[4:end], b.rest[end:]
	}
	size, err = s2.DecodedLen(block)
	if err == nil && size > recordbatch.MaxRecord {
		err = fmt.Errorf("%w of %d bytes: a snappy block has %d", recordbatch.ErrInflates, recordbatch.MaxRecord, size)
	}
	return block, size, err
}

// snappyReader decodes block by block.
type snappyReader struct {
	blocks snappyBlocks
	buf    []byte
	ready  []byte
}

func (r *snappyReader) Read(p []byte) (n int, err error) {
	for len(r.ready) == 0 {
		block, _, err := r.blocks.next()
		if err != nil {
			return 0, err
		}
		if r.buf, err = s2.Decode(r.buf[:cap(r.buf)], block); err != nil {
			return 0, err
		}
		r.ready = r.buf
	}
	n = copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}
