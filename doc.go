// Package loquat defines the types of the chat session service: sessions made of
// messages, requests that run on them, the events that record every change, and the
// errors that clients see. It also contains the two functions that give events their
// meaning. Compact shortens a window of events. Fold computes a session from a snapshot
// and the events after it.
//
// The JSON of these types is stable, because the HTTP API, the log and the bridge carry
// it. The package has no state, does no input or output, and imports only the standard
// library.
package loquat
