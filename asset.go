package loquat

// Asset is an image that was uploaded to a session. A data directory stores the bytes
// once, even when several sessions use the image.
type Asset struct {
	AssetID   string `json:"asset_id"`
	MediaType string `json:"media_type"` // detected from the bytes
	Size      int64  `json:"size"`       // in bytes
	SHA256    string `json:"sha256"`     // of the bytes, in hexadecimal
	Name      string `json:"name,omitempty"`
}
