package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"loquat"
)

// maxProblem is the number of bytes that are read of an error answer.
const maxProblem = 1 << 20

// problem returns the *loquat.Error of an error answer. An answer that breaks off counts as
// no answer, because the status alone does not distinguish codes such as busy and conflict.
func (c *Client) problem(ctx context.Context, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return c.unreachable(ctx, err)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media == "application/problem+json" {
		if err := decodeProblem(resp.StatusCode, body); err != nil {
			return err
		}
	}
	return loquat.Errorf(codeOfStatus(resp.StatusCode), "%s answered %s without a problem document; is a loquat server there? The answer begins with: %s",
		c.base.Redacted(), resp.Status, excerpt(body))
}

// decodeProblem returns nil if body is not a problem.
func decodeProblem(status int, body []byte) error {
	var p loquat.Problem
	if json.Unmarshal(body, &p) != nil {
		return nil
	}
	e := &loquat.Error{Code: p.Code, Detail: p.Detail, Fields: p.Errors, RequestID: p.RequestID}
	if e.Code == "" {
		e.Code = codeOfStatus(status)
	}
	if e.Detail == "" {
		e.Detail = p.Title
	}
	e.Detail = loquat.Clip(e.Detail, loquat.MaxDetail)
	for i, f := range e.Fields {
		e.Fields[i] = f.Clipped()
	}
	e.Malformed = e.Code == loquat.CodeInvalid && status == http.StatusBadRequest
	return e
}

// codeOfStatus returns the code of an answer that contains none.
func codeOfStatus(status int) loquat.Code {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return loquat.CodeInvalid
	case http.StatusUnauthorized:
		return loquat.CodeUnauthorized
	case http.StatusForbidden:
		return loquat.CodeForbidden
	case http.StatusNotFound:
		return loquat.CodeNotFound
	case http.StatusMethodNotAllowed:
		return loquat.CodeMethodNotAllowed
	case http.StatusConflict:
		return loquat.CodeConflict
	case http.StatusGone:
		return loquat.CodeGone
	case http.StatusPreconditionFailed:
		return loquat.CodePreconditionFailed
	case http.StatusRequestEntityTooLarge:
		return loquat.CodeTooLarge
	case http.StatusUnsupportedMediaType:
		return loquat.CodeUnsupportedMedia
	case http.StatusTooManyRequests:
		return loquat.CodeRateLimited
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return loquat.CodeUnavailable
	}
	return loquat.CodeInternal
}

// excerpt returns the beginning of a body on one line, for an error message.
func excerpt(body []byte) string {
	text := strings.Join(strings.Fields(string(body)), " ")
	if text == "" {
		return "nothing"
	}
	return fmt.Sprintf("%q", loquat.Clip(text, 200))
}
