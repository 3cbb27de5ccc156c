package chat

import "loquat/internal/plugin"

// assetsHost is what actions may do with images: nothing, while no image is stored.
func (s *Service) assetsHost() plugin.Assets { return nil }
