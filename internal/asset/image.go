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

	"golang.org/x/image/webp"

	"loquat"
)

// MaxPixels is how large an image may become for those who decode it. A few thousand
// bytes can claim far more.
const MaxPixels = 150_000_000

// sniffLength is how many bytes tell what an image is.
const sniffLength = 512

// decoders read the header of an image: they are the media types that are known.
var decoders = map[string]func(io.Reader) (image.Config, error){
	"image/png":  png.DecodeConfig,
	"image/jpeg": jpeg.DecodeConfig,
	"image/gif":  gif.DecodeConfig,
	"image/webp": webp.DecodeConfig,
}

// MediaTypes returns the media types of the images that are known.
func MediaTypes() []string { return []string{"image/png", "image/jpeg", "image/gif", "image/webp"} }

// Known reports whether images of a media type can be kept.
func Known(mediaType string) bool { return slices.Contains(MediaTypes(), mediaType) }

// Refusal is why bytes are not kept: the clause that follows their name.
type Refusal struct {
	Code   loquat.Code
	Clause string
}

func (r *Refusal) Error() string { return "the image " + r.Clause }

func refuse(format string, args ...any) *Refusal {
	return &Refusal{Code: loquat.CodeInvalid, Clause: fmt.Sprintf(format, args...)}
}

// Inspect reads the header of an image and returns its media type. It refuses what is
// none, what is not as claimed ("" claims nothing), and what would become too large. It
// may leave the rest unread. An error that is no *Refusal is the reader's.
func Inspect(r io.Reader, claimed string) (mediaType string, err error) {
	content := &failing{r: r}
	in := bufio.NewReaderSize(content, 4<<10)
	mediaType, err = sniff(in, claimed)
	if err == nil {
		err = measure(in, mediaType)
	}
	if content.err != nil {
		return "", content.err
	}
	return mediaType, err
}

// sniff tells what an image is by its first bytes, which it does not consume.
func sniff(in *bufio.Reader, claimed string) (string, error) {
	head, err := in.Peek(sniffLength)
	switch is := http.DetectContentType(head); {
	case err != nil && err != io.EOF:
		return "", err
	case len(head) == 0:
		return "", refuse("is empty")
	case !Known(is):
		return "", refuse("is none of %s", strings.Join(MediaTypes(), ", "))
	case claimed != "" && claimed != is:
		return "", refuse("says %s, but its bytes are %s", claimed, is)
	default:
		return is, nil
	}
}

// measure decodes no more than the header.
func measure(in io.Reader, mediaType string) error {
	size, err := decoders[mediaType](in)
	if err != nil {
		return refuse("has a broken header: %v", err)
	}
	if size.Width <= 0 || size.Height <= 0 || size.Width > MaxPixels/size.Height {
		return refuse("is %d by %d pixels; there may be %d in all", size.Width, size.Height, MaxPixels)
	}
	return nil
}

// failing remembers how a reader failed: decoders tell it as if the image were broken.
type failing struct {
	r   io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}
