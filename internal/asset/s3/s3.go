// Package s3 stores images as objects of an S3-compatible object store.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"loquat/internal/asset"
)

const (
	dialTimeout = 5 * time.Second
	// callTimeout is how long a call without the bytes of an image may take, with its repeats.
	callTimeout = 10 * time.Second
	// attempts is how often a call is made.
	attempts = 3
	// checkAge is how long the result of a check is used again.
	checkAge = 5 * time.Second
	// defaultRegion is used if neither the URL nor the environment names one.
	defaultRegion = "us-east-1"
)

// idleTimeout is how long the server may take or send no bytes of an object.
var idleTimeout = 30 * time.Second

// Options configure a Bucket.
type Options struct {
	Location asset.Location
	// AccessKeyID and SecretAccessKey are the credentials. If they are empty, they come from the
	// environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), from
	// ~/.aws/credentials, or from the role of the machine.
	AccessKeyID, SecretAccessKey string
}

// Bucket is a part of a bucket.
type Bucket struct {
	client   *minio.Core
	location asset.Location
	host     string

	mu      sync.Mutex
	checked time.Time // guarded by mu
	result  error     // of the last check; guarded by mu
}

var _ asset.Store = (*Bucket)(nil)

// marker is the name of an object that Open writes and Check looks for: a look for an object
// that does not exist needs a right of its own.
const marker = "loquat"

// Open returns a bucket after it has written to it and read from it. If the server cannot be
// reached, the error is an *asset.UnavailableError, and the Bucket can be used nevertheless.
func Open(ctx context.Context, o Options) (*Bucket, error) {
	client, err := connect(o)
	if err != nil {
		return nil, fmt.Errorf("assets.url: %w", err)
	}
	b := &Bucket{client: client, location: o.Location, host: client.EndpointURL().Host}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text := "Loquat stores images here. Do not remove this object.\n"
	_, err = client.Client.PutObject(ctx, o.Location.Bucket, b.key(marker), strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{DisableMultipart: true, SendContentMd5: true})
	if err == nil {
		err = b.look(ctx)
	}
	if err != nil {
		return b, b.failed("", fmt.Errorf("write to the bucket: %w", err))
	}
	return b, nil
}

// connect returns a client, which has not called the server yet.
func connect(o Options) (*minio.Core, error) {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: idleTimeout,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       time.Minute,
		DisableCompression:    true,
	}
	lookup := minio.BucketLookupAuto
	if o.Location.PathStyle {
		lookup = minio.BucketLookupPath
	}
	return minio.NewCore(cmp.Or(o.Location.Endpoint, "s3.amazonaws.com"), &minio.Options{
		Creds: keys(o), Secure: !o.Location.Insecure, Transport: transport, BucketLookup: lookup, MaxRetries: attempts,
		Region: cmp.Or(o.Location.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), defaultRegion),
	})
}

func keys(o Options) *credentials.Credentials {
	if o.AccessKeyID != "" {
		return credentials.NewStaticV4(o.AccessKeyID, o.SecretAccessKey, "")
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: dialTimeout}},
	})
}

func (b *Bucket) key(name string) string { return b.location.Prefix + name }

// Put implements asset.Store. The object is sent in one request, so it is visible as a whole or
// not at all, and an interrupted upload leaves no parts. If the server has all bytes of a Put that
// is interrupted, it may store them some time later.
func (b *Bucket) Put(ctx context.Context, name string, u *asset.Upload) error {
	f, err := os.Open(u.Path())
	if err != nil {
		return err
	}
	defer f.Close()
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(idleTimeout, func() { cancel(errIdle) })
	defer idle.Stop()
	_, err = b.client.Client.PutObject(sending, b.location.Bucket, b.key(name), f, u.Size, minio.PutObjectOptions{
		DisableMultipart: true, SendContentMd5: true, ContentType: "application/octet-stream",
		Progress: readerFunc(func(p []byte) (int, error) { idle.Reset(idleTimeout); return len(p), nil }),
	})
	if err != nil {
		return b.failed(name, cmp.Or(onlyIdle(sending), err))
	}
	return nil
}

var errIdle = errors.New("the server took or sent no bytes for too long")

// onlyIdle returns errIdle if that is why a context ended.
func onlyIdle(ctx context.Context) error {
	if cause := context.Cause(ctx); cause == errIdle {
		return cause
	}
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Open implements asset.Store.
func (b *Bucket) Open(ctx context.Context, name string, size int64) (io.ReadSeekCloser, error) {
	looking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := b.client.Client.StatObject(looking, b.location.Bucket, b.key(name), minio.StatObjectOptions{})
	if err != nil {
		return nil, b.failed(name, err)
	}
	if info.Size != size {
		return nil, asset.SizeError(name, info.Size, size)
	}
	return asset.NewReader(ctx, size, func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		var opts minio.GetObjectOptions
		if err := opts.SetRange(offset, size-1); err != nil {
			return nil, err
		}
		body, _, _, err := b.client.GetObject(ctx, b.location.Bucket, b.key(name), opts)
		if err != nil {
			return nil, b.failed(name, err)
		}
		return body, nil
	}), nil
}

// Remove implements asset.Store.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := b.client.Client.RemoveObject(ctx, b.location.Bucket, b.key(name), minio.RemoveObjectOptions{})
	if err = b.failed(name, err); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Check implements asset.Store.
func (b *Bucket) Check(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.checked.IsZero() && time.Since(b.checked) < checkAge {
		return b.result
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	b.result = b.failed(marker, b.look(ctx))
	if errors.Is(b.result, fs.ErrNotExist) {
		b.result = &asset.UnavailableError{Text: "the bucket of images was removed, or the object " + b.key(marker) + " in it; create the bucket and restart the server", Err: b.result}
	}
	b.checked = time.Now()
	return b.result
}

// look asks for the marker.
func (b *Bucket) look(ctx context.Context) error {
	_, err := b.client.Client.StatObject(ctx, b.location.Bucket, b.key(marker), minio.StatObjectOptions{})
	return err
}

// refusals are the codes of S3 that an operator can do something about, with what to do.
var refusals = map[string]string{
	"NoSuchBucket":          "the bucket of images does not exist; create it, or correct assets.url",
	"AccessDenied":          "the object store of images refused the access; allow the credentials to get, put and delete objects in the bucket",
	"InvalidAccessKeyId":    "the object store of images does not know the access key; correct assets.access_key_id or the environment",
	"SignatureDoesNotMatch": "the object store of images refused the secret key; correct assets.secret_access_key or the environment",
	"ExpiredToken":          "the credentials for the object store of images have expired",
}

// RefusedError reports that the server answers, but refuses to store images: the configuration is
// wrong.
type RefusedError struct{ err error }

func (e *RefusedError) Error() string { return e.err.Error() }
func (e *RefusedError) Unwrap() error { return e.err }

// failed returns the error of a call as package asset wants it.
func (b *Bucket) failed(name string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	if answer.Code == minio.NoSuchKey {
		return fmt.Errorf("object %s: %w", b.key(name), fs.ErrNotExist)
	}
	text, known := refusals[answer.Code]
	if status := answer.StatusCode; !known && status/100 == 4 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests {
		text, known = "the object store of images refused the request; check assets.url and its credentials", true
	}
	if known {
		return &asset.UnavailableError{Text: text, Err: &RefusedError{fmt.Errorf("bucket %s at %s: %w", b.location.Bucket, b.host, err)}}
	}
	text = "the object store of images failed"
	if _, network := errors.AsType[net.Error](err); network || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, errIdle) || errors.Is(err, context.DeadlineExceeded) {
		text = "the object store of images cannot be reached"
	}
	return &asset.UnavailableError{Text: text, Err: fmt.Errorf("bucket %s at %s: %w", b.location.Bucket, b.host, err)}
}
