package asset

import (
	"bufio"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"slices"
	"strings"

	"loquat"
)

// MaxPixels is the largest number of pixels of an image. A file of a few thousand bytes can
// contain far more, which would exhaust the memory of clients that decode it.
const MaxPixels = 150_000_000

// sniffLength is the number of bytes from which the media type is detected.
const sniffLength = 512

// decoders decode the header of an image, by media type.
var decoders = map[string]func(io.Reader) (image.Config, error){
	"image/png":  png.DecodeConfig,
	"image/jpeg": jpeg.DecodeConfig,
	"image/gif":  gif.DecodeConfig,
	"image/webp": decodeWebP,
}

// MediaTypes returns the supported media types.
func MediaTypes() []string { return []string{"image/png", "image/jpeg", "image/gif", "image/webp"} }

// IsSupported reports whether images of a media type can be stored.
func IsSupported(mediaType string) bool { return slices.Contains(MediaTypes(), mediaType) }

// ImageError says why an image is rejected. Clause is the part of the message that follows
// the name of the image, such as "is empty".
type ImageError struct {
	Code   loquat.Code
	Clause string
}

func (r *ImageError) Error() string { return "the image " + r.Clause }

func rejectf(format string, args ...any) *ImageError {
	return &ImageError{Code: loquat.CodeInvalid, Clause: fmt.Sprintf(format, args...)}
}

// Inspect reads the header of an image and returns its media type. The error is an
// *ImageError if the bytes are not a supported image, if the media type differs from claimed
// (unless claimed is ""), or if the image has too many pixels. Any other error comes from r.
// Inspect may leave the rest of r unread.
func Inspect(r io.Reader, claimed string) (mediaType string, err error) {
	content := &errorReader{r: r}
	in := bufio.NewReaderSize(content, 4<<10)
	mediaType, err = detectMediaType(in, claimed)
	if err == nil {
		err = checkHeader(in, mediaType)
	}
	if content.err != nil {
		return "", content.err
	}
	return mediaType, err
}

// detectMediaType detects the media type from the first bytes, without consuming them.
func detectMediaType(in *bufio.Reader, claimed string) (string, error) {
	head, err := in.Peek(sniffLength)
	switch is := http.DetectContentType(head); {
	case err != nil && err != io.EOF:
		return "", err
	case len(head) == 0:
		return "", rejectf("is empty")
	case !IsSupported(is):
		return "", rejectf("is none of %s", strings.Join(MediaTypes(), ", "))
	case claimed != "" && claimed != is:
		return "", rejectf("is sent as %s, but its bytes are %s", claimed, is)
	default:
		return is, nil
	}
}

// checkHeader decodes the header and checks the number of pixels.
func checkHeader(in io.Reader, mediaType string) error {
	size, err := decoders[mediaType](in)
	if err != nil {
		return rejectf("has a broken header: %v", err)
	}
	if size.Width <= 0 || size.Height <= 0 || size.Width > MaxPixels/size.Height {
		return rejectf("is %d by %d pixels; at most %d pixels in total are allowed", size.Width, size.Height, MaxPixels)
	}
	return nil
}

// errorReader remembers the error of a reader, because decoders report it as if the image
// were malformed.
type errorReader struct {
	r   io.Reader
	err error
}

func (f *errorReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}
