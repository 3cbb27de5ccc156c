package asset

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Location is a place in an S3-compatible object store.
type Location struct {
	Bucket    string
	Prefix    string // of all names; "" or a path that ends in /
	Endpoint  string // host and port of the server; "" means Amazon's
	Insecure  bool   // the server speaks HTTP
	Region    string // "" means the environment's, or the server's default
	PathStyle bool   // the bucket is named in the path, not in the host
}

// bucketName is what S3 allows as the name of a bucket.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// prefixName is what the path of a location may have, so that names need no encoding.
var prefixName = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// ParseLocation reads a URL such as s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION&path_style=true.
// Its errors follow the name of the setting, and do not show credentials.
func ParseLocation(text string) (l Location, err error) {
	const form = "s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION&path_style=true"
	u, err := url.Parse(text)
	switch {
	case !strings.HasPrefix(text, "s3://"):
		return l, errors.New("is not the address of a bucket; must begin with s3://, as " + form)
	case err != nil || u.Fragment != "":
		return l, errors.New("is not a URL; write it as " + form)
	case u.User != nil:
		return l, errors.New("has credentials; give them as assets.access_key_id and assets.secret_access_key, or in the environment")
	case u.Port() != "" || strings.HasSuffix(u.Host, ":"):
		return l, errors.New("has a port; write the bucket after s3://, and the server as endpoint=https://HOST:PORT")
	case !bucketName.MatchString(u.Host):
		return l, fmt.Errorf("names the bucket %q; must have 3 to 63 lower-case letters, digits, dots and hyphens", u.Host)
	}
	l.Bucket, l.Prefix = u.Host, strings.Trim(u.Path, "/")
	if l.Prefix != "" {
		if !prefixName.MatchString(l.Prefix) {
			return l, fmt.Errorf("has the prefix %q; must have only letters, digits, dots, hyphens and underscores between single slashes", l.Prefix)
		}
		l.Prefix += "/"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return l, errors.New("has parameters that cannot be read; write it as " + form)
	}
	for name, values := range query {
		if len(values) > 1 {
			return l, fmt.Errorf("has the parameter %s %d times; write it once", name, len(values))
		}
		if err := l.set(name, values[0]); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l *Location) set(name, value string) (err error) {
	switch name {
	case "endpoint":
		u, err := url.Parse(value)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return errors.New("has an endpoint that cannot be used; must be http:// or https://, a host and perhaps a port, without a path")
		}
		l.Endpoint, l.Insecure = u.Host, u.Scheme == "http"
	case "region":
		l.Region = value
	case "path_style":
		if l.PathStyle, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("has path_style=%s; must be true or false", value)
		}
	default:
		return fmt.Errorf("has the parameter %q, which is not known; known: endpoint, region, path_style", name)
	}
	return nil
}
