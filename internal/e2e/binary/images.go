package binary

import (
	"bytes"
	"crypto/sha256"
	"image"
	"image/png"
	"math/rand/v2"
	"strconv"
)

// Photo returns a PNG of noise of about n bytes.
func Photo(seed uint64, n int) []byte {
	key := sha256.Sum256([]byte(strconv.FormatUint(seed, 10)))
	side := 1
	for side*side < n {
		side++
	}
	img := image.NewGray(image.Rect(0, 0, side, side))
	_, _ = rand.NewChaCha8(key).Read(img.Pix)
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.NoCompression}
	if err := encoder.Encode(&b, img); err != nil {
		panic(err)
	}
	return b.Bytes()
}
