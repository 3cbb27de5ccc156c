package asset_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"loquat"
	"loquat/internal/asset"
)

const maxSize = 64 << 10

func pngOf(t testing.TB, w, h int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func jpegOf(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 2)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gifOf(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gif.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 2)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// webpOf returns the header of an extended WebP image with a canvas of the given size.
func webpOf(w, h int) []byte {
	chunk := []byte{0, 0, 0, 0, byte(w - 1), byte((w - 1) >> 8), byte((w - 1) >> 16), byte(h - 1), byte((h - 1) >> 8), byte((h - 1) >> 16)}
	b := []byte("RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00")
	return append(b, chunk...)
}

// The size of an image is in the first chunk of a WebP file, in one of three forms.
func TestSizeOfWebP(t *testing.T) {
	const w, h = 16383, 16001                                                                                                                             // more pixels than are allowed, so that the error says what was read
	lossy := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16([]byte("VP8 \x0a\x00\x00\x00\x10\x00\x00\x9d\x01\x2a"), w|1<<14), h|2<<14) // with bits for scaling
	lossless := binary.LittleEndian.AppendUint32([]byte("VP8L\x05\x00\x00\x00\x2f"), w-1|(h-1)<<14|1<<28)                                                 // with a bit for alpha
	container := []byte("RIFF\x16\x00\x00\x00WEBP")
	for name, content := range map[string][]byte{
		"lossy": slices.Concat(container, lossy), "lossless": slices.Concat(container, lossless), "extended": webpOf(w, h),
	} {
		if _, err := asset.Inspect(bytes.NewReader(content), ""); err == nil || !strings.Contains(err.Error(), "is 16383 by 16001 pixels") {
			t.Errorf("%s: %v", name, err)
		}
		for cut := 20; cut < len(content); cut++ {
			if _, err := asset.Inspect(bytes.NewReader(content[:cut]), ""); err == nil || !strings.Contains(err.Error(), "broken header") {
				t.Errorf("%s without its last %d bytes: %v", name, len(content)-cut, err)
			}
		}
	}
}

// hugePNG returns a small PNG file whose header gives a large size.
func hugePNG(w, h uint32) []byte {
	head := []byte("IHDR")
	head = binary.BigEndian.AppendUint32(head, w)
	head = binary.BigEndian.AppendUint32(head, h)
	head = append(head, 8, 0, 0, 0, 0)
	b := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	b = append(b, head...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(head))
}

func open(t *testing.T, path string) *asset.Spool {
	t.Helper()
	d, err := asset.OpenSpool(path, maxSize)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// listFiles lists the files below a directory.
func listFiles(t *testing.T, path string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(path, p)
			files = append(files, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestMediaTypes(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	for want, content := range map[string][]byte{
		"image/png": pngOf(t, 3, 2), "image/jpeg": jpegOf(t), "image/gif": gifOf(t), "image/webp": webpOf(300, 200),
	} {
		for _, claimed := range []string{"", want} {
			u, err := d.Receive(iotest.OneByteReader(bytes.NewReader(content)), claimed)
			if err != nil {
				t.Errorf("%s claimed as %q: %v", want, claimed, err)
				continue
			}
			hash := sha256.Sum256(content)
			if u.MediaType != want || u.Size != int64(len(content)) || u.SHA256 != hex.EncodeToString(hash[:]) {
				t.Errorf("%s: got %+v", want, u)
			}
			u.Discard()
		}
		if got, err := asset.Inspect(bytes.NewReader(content), ""); got != want || err != nil {
			t.Errorf("%s: inspected as %q, %v", want, got, err)
		}
	}
	if files := listFiles(t, path); len(files) > 0 {
		t.Errorf("discarded uploads left %q", files)
	}
}

func TestRejectedImages(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	tooLarge := append(pngOf(t, 3, 2), make([]byte, maxSize)...)
	for name, c := range map[string]struct {
		content []byte
		claimed string
		want    string
		code    loquat.Code
	}{
		"empty":            {nil, "image/png", "empty", loquat.CodeInvalid},
		"text":             {[]byte("hello"), "", "none of", loquat.CodeInvalid},
		"svg":              {[]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`), "", "none of", loquat.CodeInvalid},
		"bmp":              {[]byte("BM\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), "", "none of", loquat.CodeInvalid},
		"wrong claim":      {gifOf(t), "image/png", "its bytes are image/gif", loquat.CodeInvalid},
		"too large":        {tooLarge, "image/png", "limits.max_asset_bytes", loquat.CodeTooLarge},
		"signature alone":  {[]byte("\x89PNG\r\n\x1a\n"), "", "broken header", loquat.CodeInvalid},
		"broken jpeg":      {[]byte("\xff\xd8\xff\xe0junkjunkjunk"), "", "broken header", loquat.CodeInvalid},
		"too many pixels":  {hugePNG(20000, 20000), "", "pixels", loquat.CodeInvalid},
		"pixels overflow":  {hugePNG(1<<31-1, 1<<31-1), "", "", loquat.CodeInvalid},
		"long strip":       {hugePNG(asset.MaxPixels+1, 1), "", "pixels", loquat.CodeInvalid},
		"large webp":       {webpOf(16000, 16000), "", "pixels", loquat.CodeInvalid},
		"png of no pixels": {hugePNG(0, 5), "", "", loquat.CodeInvalid},
	} {
		_, err := d.Receive(bytes.NewReader(c.content), c.claimed)
		r, ok := errors.AsType[*asset.ImageError](err)
		if !ok || r.Code != c.code || !strings.Contains(r.Clause, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if files := listFiles(t, path); len(files) > 0 {
		t.Errorf("rejected uploads left %q", files)
	}
	exact := append(pngOf(t, 3, 2), make([]byte, maxSize)...)[:maxSize]
	u, err := d.Receive(bytes.NewReader(exact), "")
	if err != nil || u.Size != maxSize {
		t.Errorf("an image of exactly the largest size: %v", err)
	}
}

// Receive stops reading when an upload exceeds the limit.
func TestReceiveStopsAtLimit(t *testing.T) {
	d := open(t, t.TempDir())
	read := &countingReader{r: io.MultiReader(bytes.NewReader(pngOf(t, 3, 2)), endless{})}
	if _, err := d.Receive(read, ""); err == nil {
		t.Error("an endless image was accepted")
	}
	if read.n > maxSize+64<<10 {
		t.Errorf("%d bytes were read for a limit of %d", read.n, maxSize)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestInterruptedUploads(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	cut := errors.New("cut")
	whole := pngOf(t, 100, 100)
	for _, n := range []int{0, 1, 8, 20, 40, len(whole)} {
		_, err := d.Receive(io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(cut)), "")
		if !errors.Is(err, cut) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
		if _, err := asset.Inspect(io.MultiReader(bytes.NewReader(whole[:min(n, 20)]), iotest.ErrReader(cut)), ""); !errors.Is(err, cut) {
			t.Errorf("inspected, cut after %d bytes: %v", n, err)
		}
	}
	if files := listFiles(t, path); len(files) > 0 {
		t.Errorf("interrupted uploads left %q", files)
	}
}

func TestOpenRemovesIncompleteUploads(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	if _, err := d.Receive(bytes.NewReader(pngOf(t, 7, 7)), ""); err != nil {
		t.Fatal(err)
	}
	if files := listFiles(t, path); len(files) != 1 {
		t.Fatalf("the files of an unplaced upload are %q", files)
	}
	open(t, path)
	if files := listFiles(t, path); len(files) != 0 {
		t.Errorf("left: %q", files)
	}
}

// A spool whose directory is removed refuses uploads and says why.
func TestSpoolIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "incoming")
	d := open(t, path)
	if err := d.Check(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := d.Check(); err == nil || !strings.Contains(err.Error(), "move it back") {
		t.Errorf("a check: %v", err)
	}
	if _, err := d.Receive(bytes.NewReader(pngOf(t, 7, 7)), ""); err == nil {
		t.Error("an upload was received")
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(pngOf(f, 3, 2))
	f.Add(jpegOf(f))
	f.Add(gifOf(f))
	f.Add(webpOf(3, 2))
	f.Add(hugePNG(1<<30, 1<<30))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, err := asset.Inspect(bytes.NewReader(b), "")
		if _, rejected := errors.AsType[*asset.ImageError](err); err != nil && !rejected {
			t.Errorf("the error is not an *ImageError: %v", err)
		}
		if err == nil && !asset.IsSupported(kind) {
			t.Errorf("the media type is %q", kind)
		}
	})
}
