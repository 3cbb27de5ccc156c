package loquat

// Health answers GET /healthz.
type Health struct {
	Status string `json:"status"` // ok
}

// Readiness answers GET /readyz: whether the server can take requests, and why not.
type Readiness struct {
	Ready  bool              `json:"ready"`
	Store  string            `json:"store"`  // ok, or what is wrong with the store
	Detail map[string]string `json:"detail"` // state of further parts, by their names
}

// Version answers GET /version.
type Version struct {
	Version string `json:"version"` // of the build
	API     int    `json:"api"`     // of the HTTP API
	Go      string `json:"go"`
}
