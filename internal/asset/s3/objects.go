package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// partSize is how many bytes of an object of unknown size are sent in one request.
const partSize = 16 << 20

// Objects is a part of a bucket in which the caller names the objects, and which may be listed. A
// Bucket is never listed, because others may share its database.
type Objects struct {
	client *minio.Core
	place  Options
}

// OpenObjects returns the objects of a part of a bucket. It does not call the server.
func OpenObjects(o Options) (*Objects, error) {
	client, err := connect(o)
	if err != nil {
		return nil, err
	}
	return &Objects{client, o}, nil
}

func (o *Objects) key(name string) string { return o.place.Location.Prefix + name }

// Put stores an object, which then is visible as a whole. A size below 0 is unknown. If Put fails,
// the key has no object, its old object, or the complete new one.
func (o *Objects) Put(ctx context.Context, name string, size int64, r io.Reader) error {
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(idleTimeout, func() { cancel(errIdle) })
	defer idle.Stop()
	opts := minio.PutObjectOptions{
		SendContentMd5: true, ContentType: "application/octet-stream", DisableMultipart: size >= 0,
		Progress: readerFunc(func(p []byte) (int, error) { idle.Reset(idleTimeout); return len(p), nil }),
	}
	if size < 0 {
		opts.PartSize = partSize
		r = pausing(r, idle) // a part is read as a whole before the first of its bytes is sent
	}
	_, err := o.client.Client.PutObject(sending, o.place.Location.Bucket, o.key(name), r, size, opts)
	if cause := onlyIdle(sending); err != nil && cause != nil {
		err = cause
	}
	return o.failed(name, err)
}

// pausing returns a reader that stops a timer while it reads from r: the server does not wait for bytes
// to take or send then.
func pausing(r io.Reader, idle *time.Timer) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		idle.Stop()
		defer idle.Reset(idleTimeout)
		return r.Read(p)
	})
}

// Get returns the bytes of an object. If there is none, the error wraps fs.ErrNotExist.
func (o *Objects) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	reading, cancel := context.WithCancelCause(ctx)
	body, _, _, err := o.client.GetObject(reading, o.place.Location.Bucket, o.key(name), minio.GetObjectOptions{})
	if err != nil {
		cancel(nil)
		return nil, o.failed(name, err)
	}
	idle := time.AfterFunc(idleTimeout, func() { cancel(errIdle) })
	idle.Stop() // the time until the first Read is the reader's own
	return &idleReader{body, reading, cancel, idle, o, name}, nil
}

// idleReader ends a body whose server sends nothing for idleTimeout while it is read.
type idleReader struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   *time.Timer
	from   *Objects
	name   string
}

func (r *idleReader) Read(p []byte) (int, error) {
	r.idle.Reset(idleTimeout)
	n, err := r.ReadCloser.Read(p)
	r.idle.Stop() // the time until the next Read is the reader's own
	if cause := onlyIdle(r.ctx); err != nil && cause != nil {
		err = r.from.failed(r.name, cause)
	}
	return n, err
}

func (r *idleReader) Close() error {
	r.idle.Stop()
	r.cancel(nil)
	return r.ReadCloser.Close()
}

// List calls fn with each object whose name begins with prefix, and its size.
func (o *Objects) List(ctx context.Context, prefix string, fn func(name string, size int64) error) error {
	listing, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(idleTimeout, func() { cancel(errIdle) })
	defer idle.Stop()
	for object := range o.client.Client.ListObjectsIter(listing, o.place.Location.Bucket, minio.ListObjectsOptions{Prefix: o.key(prefix), Recursive: true}) {
		if object.Err != nil {
			return o.failed(prefix, cmp.Or(onlyIdle(listing), object.Err))
		}
		idle.Stop() // the time in fn is the caller's own
		if err := fn(strings.TrimPrefix(object.Key, o.place.Location.Prefix), object.Size); err != nil {
			return err
		}
		idle.Reset(idleTimeout)
	}
	if cause := onlyIdle(listing); cause != nil {
		return o.failed(prefix, cause)
	}
	return ctx.Err()
}

// Remove removes an object, if there is one.
func (o *Objects) Remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := o.failed(name, o.client.Client.RemoveObject(ctx, o.place.Location.Bucket, o.key(name), minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Clean removes the parts that interrupted calls of Put have left. No Put may run.
func (o *Objects) Clean(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for upload := range o.client.Client.ListIncompleteUploads(ctx, o.place.Location.Bucket, o.key(""), true) {
		if upload.Err != nil {
			return o.failed("", upload.Err)
		}
		if err := o.client.AbortMultipartUpload(ctx, o.place.Location.Bucket, upload.Key, upload.UploadID); err != nil {
			return o.failed("", err)
		}
	}
	return ctx.Err()
}

// remedies are the codes of S3 that an operator can do something about, with what to do.
var remedies = map[string]string{
	"NoSuchBucket":          "the bucket does not exist; create it, or correct the address",
	"AccessDenied":          "the object store refused the access; allow the credentials to get, put, delete and list objects in the bucket",
	"InvalidAccessKeyId":    "the object store does not know the access key; correct AWS_ACCESS_KEY_ID",
	"SignatureDoesNotMatch": "the object store refused the secret key; correct AWS_SECRET_ACCESS_KEY",
	"ExpiredToken":          "the credentials have expired; renew them",
}

// failed returns the error of a call with its remedy. It is a *RefusedError if the server refuses the
// call, so that repeating it does not help.
func (o *Objects) failed(name string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	if answer.Code == minio.NoSuchKey {
		return fmt.Errorf("object %s: %w", o.key(name), fs.ErrNotExist)
	}
	where := fmt.Errorf("bucket %s at %s: %w", o.place.Location.Bucket, o.client.EndpointURL().Host, err)
	remedy, known := remedies[answer.Code]
	if status := answer.StatusCode; !known && status/100 == 4 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests {
		remedy, known = "the object store refused the request; check the address and the credentials", true
	}
	if known {
		return &RefusedError{fmt.Errorf("%s: %w", remedy, where)}
	}
	return fmt.Errorf("the object store cannot be reached or failed: %w", where)
}
