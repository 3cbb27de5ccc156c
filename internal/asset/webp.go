package asset

import (
	"encoding/binary"
	"errors"
	"image"
	"io"
)

// webpHeader is the length of the container's header, the header of the first chunk, and what the first chunk
// says of the size. A lossless image may end before.
const webpHeader = 30

// decodeWebP reads the size of a WebP image from its first chunk, as RFC 9649 describes it.
func decodeWebP(r io.Reader) (image.Config, error) {
	var b [webpHeader]byte
	n, err := io.ReadFull(r, b[:])
	if err != nil && err != io.ErrUnexpectedEOF {
		return image.Config{}, err
	}
	riff, size, data := int64(binary.LittleEndian.Uint32(b[4:])), int64(binary.LittleEndian.Uint32(b[16:])), b[20:]
	if string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP" && size <= riff-12 {
		switch kind := string(b[12:16]); {
		case kind == "VP8 " && size >= 10 && n == webpHeader && data[0]&1 == 0 && string(data[3:6]) == "\x9d\x01\x2a": // a key frame and its start code
			return image.Config{Width: int(binary.LittleEndian.Uint16(data[6:]) & 0x3fff), Height: int(binary.LittleEndian.Uint16(data[8:]) & 0x3fff)}, nil
		case kind == "VP8L" && size >= 5 && n >= 25 && data[0] == 0x2f && data[4]>>5 == 0: // the signature and the version
			bits := int(binary.LittleEndian.Uint32(data[1:]))
			return image.Config{Width: bits&0x3fff + 1, Height: bits>>14&0x3fff + 1}, nil
		case kind == "VP8X" && size == 10 && n == webpHeader:
			return image.Config{Width: uint24(data[4:]) + 1, Height: uint24(data[7:]) + 1}, nil
		}
	}
	return image.Config{}, errors.New("webp: its first chunk is not that of an image")
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
