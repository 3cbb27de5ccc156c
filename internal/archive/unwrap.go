package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
)

// Identify sets the media type, size and hash of an image from its bytes.
func Identify(image *Image) error {
	content, err := image.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	in := bufio.NewReader(content)
	head, err := in.Peek(512)
	if err != nil && err != io.EOF {
		return err
	}
	hash := sha256.New()
	if image.Size, err = io.Copy(hash, in); err != nil {
		return err
	}
	image.MediaType, image.SHA256 = http.DetectContentType(head), hex.EncodeToString(hash.Sum(nil))
	return nil
}

// Unwrap returns the session in an archive that Writer wrote, if the archive has exactly one. The
// reader fails if the archive is cut off.
func Unwrap(in io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(in, 64<<10)
	head, err := buffered.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if want := fmt.Sprintf(`{"format":%q,"version":%d,"sessions":[`+"\n", format, version); head != want {
		return nil, fmt.Errorf("is not an archive of version %d; do the versions of the program and the server agree?", version)
	}
	return &unwrapped{in: buffered}, nil
}

// sessionsEnd is what follows the last session of an archive.
const sessionsEnd = "\n]}\n"

// unwrapped reads up to sessionsEnd at the end of an archive.
type unwrapped struct{ in *bufio.Reader }

func (u *unwrapped) Read(p []byte) (int, error) {
	chunk, err := u.in.Peek(len(sessionsEnd) + 1)
	if len(chunk) > len(sessionsEnd) {
		chunk, _ = u.in.Peek(u.in.Buffered())
		n := copy(p, chunk[:len(chunk)-len(sessionsEnd)])
		_, _ = u.in.Discard(n)
		return n, nil
	}
	if err == io.EOF && string(chunk) == sessionsEnd {
		return 0, io.EOF
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return 0, err
}
