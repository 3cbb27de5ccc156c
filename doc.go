// Package loquat holds the nouns of the chat session service: sessions made of
// messages, requests that run on them, the events that tell of every change, and
// the errors that cross an edge. It also holds the two pure functions that give
// events their meaning: Compact, which thins a window, and Fold, which is what a
// client makes of one.
//
// It promises stable JSON: what these types encode to is what the HTTP API, the
// log and the bridge carry. It holds no state, does no input or output, and
// imports only the standard library.
package loquat
