package chat

import (
	"time"

	"github.com/google/uuid"

	"loquat"
)

// newID returns an id that sorts by time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// newMessage returns a message without content.
func newMessage(role string) loquat.Message {
	return loquat.Message{ID: newID(), Role: role, CreatedAt: time.Now().UTC().Truncate(time.Millisecond)}
}
