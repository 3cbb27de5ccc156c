package asset_test

import (
	"strings"
	"testing"

	"loquat/internal/asset"
)

func TestParseLocation(t *testing.T) {
	for text, want := range map[string]asset.Location{
		"s3://images":                  {Bucket: "images"},
		"s3://images/":                 {Bucket: "images"},
		"s3://my.bucket-1/a/b_c/":      {Bucket: "my.bucket-1", Prefix: "a/b_c/"},
		"s3://images?region=eu-west-1": {Bucket: "images", Region: "eu-west-1"},
		"s3://images/p?endpoint=http://127.0.0.1:9000&path_style=true": {Bucket: "images", Prefix: "p/", Endpoint: "127.0.0.1:9000", Insecure: true, PathStyle: true},
		"s3://images?endpoint=https%3A%2F%2Fs3.example.org/":           {Bucket: "images", Endpoint: "s3.example.org"},
	} {
		if got, err := asset.ParseLocation(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"":                                    "must begin with s3://",
		"https://images":                      "must begin with s3://",
		"s3://":                               "names the bucket",
		"s3://AB":                             "names the bucket",
		"s3://-a-":                            "names the bucket",
		"s3://key:hunter2@images":             "has credentials",
		"s3://hunter2%zz@images":              "is not a URL",
		"s3://minio.example.org:9000/images":  "has a port",
		"s3://images/a//b":                    "has the prefix",
		"s3://images/a%20b":                   "has the prefix",
		"s3://images?endpoint=s3.example.org": "has an endpoint",
		"s3://images?endpoint=http://h/p":     "has an endpoint",
		"s3://images?endpoint=http://u:hunter2@h": "has an endpoint",
		"s3://images?path_style=maybe":            "must be true or false",
		"s3://images?pathstyle=true":              `"pathstyle", which is not known`,
		"s3://images?region=a&region=b":           "2 times",
		"s3://images#x":                           "is not a URL",
	} {
		_, err := asset.ParseLocation(text)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
