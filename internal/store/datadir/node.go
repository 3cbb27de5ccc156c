package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// NodeName is the file that holds the random part of a node's id.
const NodeName = "loquat.node"

// NodeID returns the id of the node that uses a locked directory. It stays the same over
// restarts. A copy of the directory, on another machine or under another path, is another node.
func NodeID(dir string) (string, error) {
	path := filepath.Join(dir, NodeName)
	random, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(random)) == "" {
		var id uuid.UUID
		if id, err = uuid.NewRandom(); err == nil {
			random = []byte(id.String() + "\n")
			err = os.WriteFile(path, random, 0o600)
		}
	}
	if err != nil {
		return "", fmt.Errorf("identify this node: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("identify this node: %w", err)
	}
	place, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("identify this node: %w", err)
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(string(random)) + "\n" + host + "\n" + place))
	return hex.EncodeToString(sum[:16]), nil
}
