package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/httpapi/route"
)

// failures is the form of all failures below the prefix.
var failures = &route.ErrorForm{Body: openAIFailure{}, Media: "application/json", Write: writeFailure}

// openAIFailure is the body of a failure.
type openAIFailure struct {
	Error openAIError `json:"error"`
}

// openAIError says what is wrong. SDKs choose the class of their error by the status.
type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param" doc:"The field of the body that is wrong."`
	Code    *string `json:"code"`
}

// The types of errors.
const (
	typeRequest = "invalid_request_error"
	typeLimit   = "rate_limit_error"
	typeServer  = "server_error"
)

// codeNames are the codes that OpenAI's API has for failures of the service. Others keep their name.
var codeNames = map[loquat.Code]string{
	loquat.CodeUnauthorized: "invalid_api_key",
	loquat.CodeRateLimited:  "rate_limit_exceeded",
	loquat.CodeInvalid:      "",
}

// writeFailure answers with a failure. What a backend refused comes as the backend said it.
func writeFailure(w http.ResponseWriter, err error) {
	if refusal, ok := errors.AsType[*loquat.BackendRefusal](err); ok {
		writeRefusal(w, refusal)
		return
	}
	p := route.Fail(w, err)
	if p.Status == http.StatusUnprocessableEntity {
		p.Status = http.StatusBadRequest // OpenAI's status for every wrong request
	}
	route.SendFailure(w, p, "application/json", openAIFailure{Error: errorOf(p)})
}

// errorOf returns the error that says what a problem says.
func errorOf(p loquat.Problem) openAIError {
	e := openAIError{Message: p.Detail, Type: typeOf(p.Status)}
	if len(p.Errors) > 0 {
		if param, ok := strings.CutPrefix(p.Errors[0].Location, "body."); ok {
			e.Param = &param
		}
	}
	code, known := codeNames[p.Code]
	if !known {
		code = string(p.Code)
	}
	if code != "" {
		e.Code = &code
	}
	return e
}

func typeOf(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return typeLimit
	case status >= http.StatusInternalServerError:
		return typeServer
	}
	return typeRequest
}

// writeRefusal answers with a backend's error status. A JSON object is passed on as it came; from
// anything else, such as an HTML page, the message is made.
func writeRefusal(w http.ResponseWriter, refusal *loquat.BackendRefusal) {
	passHeaders(w.Header(), refusal.Header)
	body := bytes.TrimSpace(refusal.Body)
	if len(body) > 0 && body[0] == '{' && json.Valid(body) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(refusal.Status)
		_, _ = w.Write(refusal.Body)
		return
	}
	p := route.ProblemOf(refusal.Err)
	p.Status = refusal.Status
	route.SendFailure(w, p, "application/json", openAIFailure{Error: errorOf(p)})
}
