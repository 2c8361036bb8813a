package kafka

import (
	"bytes"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/recordbatch"
)

// Codec compresses and decompresses what is inside record batches. Safe for concurrent use.
var Codec recordbatch.Codec = newCodec()

type codec struct {
	compressors map[uint8]kgo.Compressor
	inflaters   map[uint8]inflater
}

// newCodec makes one compressor, of franz-go, per codec of the attributes' low bits: none, gzip, snappy, lz4, zstd.
func newCodec() codec {
	c := codec{compressors: map[uint8]kgo.Compressor{}, inflaters: map[uint8]inflater{
		recordbatch.CodecGzip: newStreamed(newGzip), recordbatch.CodecSnappy: snappy{},
		recordbatch.CodecLZ4: newStreamed(newLZ4), recordbatch.CodecZstd: newZstd(),
	}}
	for id, kind := range []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(),
		kgo.Lz4Compression(), kgo.ZstdCompression(),
	} {
		compressor, err := kgo.DefaultCompressor(kind)
		if err != nil {
			panic(err) // a default level is always valid
		}
		c.compressors[uint8(id)] = compressor
	}
	return c
}

func (c codec) Decompress(codec uint8, src []byte) ([]byte, error) {
	if codec == recordbatch.CodecNone {
		return src, nil
	}
	by, ok := c.inflaters[codec]
	if !ok {
		return nil, fmt.Errorf("decompress: unknown codec %d", codec)
	}
	return by.small(src)
}

func (c codec) Inflate(codec uint8, src []byte) (io.Reader, error) {
	if codec == recordbatch.CodecNone {
		return bytes.NewReader(src), nil
	}
	by, ok := c.inflaters[codec]
	if !ok {
		return nil, fmt.Errorf("decompress: unknown codec %d", codec)
	}
	return by.stream(src)
}

func (c codec) Compress(codec uint8, src []byte) ([]byte, error) {
	compressor, ok := c.compressors[codec]
	switch {
	case !ok:
		return nil, fmt.Errorf("compress: unknown codec %d", codec)
	case codec == recordbatch.CodecNone:
		return src, nil
	}
	var dst bytes.Buffer
	out, used := compressor.Compress(&dst, src)
	if uint8(used) != codec {
		return nil, fmt.Errorf("compress: codec %d is not available", codec)
	}
	return out, nil
}
