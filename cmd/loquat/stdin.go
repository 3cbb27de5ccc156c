package main

import (
	"context"
	"io"
	"os"
)

// interruptible returns a reader of a stream whose reads end with ctx. A file is returned as it is: it never waits.
func interruptible(ctx context.Context, stream io.Reader) io.Reader {
	if file, ok := stream.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			return stream
		}
	}
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, stream)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	return r
}
