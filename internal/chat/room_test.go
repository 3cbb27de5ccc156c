package chat_test

import (
	"log/slog"
	"testing"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/headroom"
)

// Each image of an import needs room: a small file may have many large ones.
func TestImagesOfAnImportNeedRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	full := headroom.New(headroom.Options{
		Limits:   func() headroom.Limits { return headroom.Limits{MinFreeDisk: 1 << 20} },
		FreeDisk: func(string) (free, size int64, err error) { return 0, 1 << 40, nil },
	})
	s := chat.New(chat.Options{
		Store: r.store, Images: r.images, Uploads: r.uploads, Config: config.NewLive(r.config), Plugins: r.registry, Logger: slog.New(slog.DiscardHandler),
		Secrets: &config.Redactor{}, Headroom: full,
	})
	if f, err := s.Assets.CreateTemp(); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a file for an image on a full disk: %v %v", f, err)
	}
}
