package loquat

import "net/http"

// RelayRequest is a request of the chat-completions convention that goes to a backend as it is.
type RelayRequest struct {
	ProviderID string   // key under `providers`
	Config     Object   // effective config of the request
	Body       [][]byte // the JSON body, in parts that follow each other
	Stream     bool     // the body asks for a stream
	Choices    int      // how many choices the body asks for

	Answer RelayAnswer // receives the backend's answer

	Attempted func(Attempt) // as in LLMRequest
}

// RelayAnswer receives the answer of a backend, while it arrives.
type RelayAnswer interface {
	// Begin is called once, before the first Write. length is the size of the body in bytes, -1 if
	// it is not known.
	Begin(status int, header http.Header, length int)
	// Write passes bytes on at once. In a stream they are whole events, except for very large ones.
	// An error ends the call of the backend.
	Write(b []byte) (int, error)
}

// BackendRefusal reports that a backend answered a relayed request with an error status.
type BackendRefusal struct {
	Status int
	Header http.Header
	Body   []byte // without secrets; of a large body only the beginning
	Err    error  // says it in words
}

func (e *BackendRefusal) Error() string { return e.Err.Error() }
func (e *BackendRefusal) Unwrap() error { return e.Err }
