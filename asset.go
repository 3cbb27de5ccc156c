package loquat

// Asset is an image that was uploaded to a session. Its bytes are stored once for a
// data directory, however many sessions have them.
type Asset struct {
	AssetID   string `json:"asset_id"`
	MediaType string `json:"media_type"` // what the bytes are
	Size      int64  `json:"size"`       // in bytes
	SHA256    string `json:"sha256"`     // of the bytes, in hexadecimal
	Name      string `json:"name,omitempty"`
}
