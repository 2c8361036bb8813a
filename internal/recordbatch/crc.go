package recordbatch

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CheckCRC compares the stored checksum (CRC-32C, for magic 0 and 1 CRC-32) with the bytes. The error is ErrCorrupt.
func (b Batch) CheckCRC() error {
	stored, found := b.storedCRC(), uint32(0)
	if b.old() {
		found = crc32.ChecksumIEEE(b[atMagic:])
	} else {
		found = crc32.Checksum(b[atAttributes:], castagnoli)
	}
	if stored != found {
		return corrupt("checksum is %08x, bytes give %08x at offset %d", stored, found, b.BaseOffset())
	}
	return nil
}

func (b Batch) storedCRC() uint32 {
	if b.old() {
		return binary.BigEndian.Uint32(b[atMessageCRC:])
	}
	return binary.BigEndian.Uint32(b[atCRC:])
}

func (b Batch) writeCRC() {
	binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], castagnoli))
}

// A CRC register is a polynomial over GF(2) modulo the generator, lowest power in the highest bit. CRCs of two texts of
// one length differ by the CRC register of their difference, so a change of few bytes costs the register over those
// bytes, moved over the n bytes that follow: multiplied by x^(8n).

// zeroBytes[i][d] is x^(8·d·256^i): the factor that moves a register over d·256^i bytes. Four digits cover the largest
// batch.
var zeroBytes = func() (t [4][256]uint32) {
	one, step := uint32(1)<<31, uint32(1)<<23 // x^0, x^8
	for i := range t {
		t[i][0] = one
		for d := 1; d < 256; d++ {
			t[i][d] = multiply(t[i][d-1], step)
		}
		step = multiply(t[i][255], step)
	}
	return t
}()

// multiply gives a·b modulo the generator.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}

// advance moves a CRC register over n zero bytes.
func advance(register uint32, n int) uint32 {
	for i := 0; n > 0; i, n = i+1, n>>8 {
		if d := n & 255; d != 0 {
			register = multiply(register, zeroBytes[i&3][d])
		}
	}
	return register
}
