package jwt

// NewThrough is New with the transport for keys.
var NewThrough = newVerifier
