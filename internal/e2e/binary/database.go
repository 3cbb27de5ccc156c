//go:build unix

package binary

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"loquat/internal/store/postgres/pgtest"
)

// databases has the PostgreSQL server of the tests, and the database of each data directory.
var databases struct {
	sync.Mutex
	server *pgtest.Server
	urls   map[string]string // by data directory
}

// StartServers starts a server with a configuration, or with LOQUAT_TEST_STORE=postgres so many
// servers on one database.
func StartServers(t *testing.T, nodes int, config string) (list []*Process) {
	t.Helper()
	if os.Getenv(testStore) != "postgres" {
		return singleServer(t, config)
	}
	for _, node := range StartNodes(t, NodesOptions{Count: nodes, Config: config}).List {
		list = append(list, node.Process)
	}
	return list
}

// testStore is the variable that says where tests keep sessions.
const testStore = "LOQUAT_TEST_STORE"

// withStore returns the arguments of a server that keeps its sessions where the variable
// LOQUAT_TEST_STORE says: in its data directory, or with "postgres" in a database that belongs
// to that directory. The configuration gets a store.url, in a copy of the file.
func withStore(args []string) ([]string, error) {
	if os.Getenv(testStore) != "postgres" || len(args) == 0 || args[0] != "serve" {
		return args, nil
	}
	file, data := slices.Index(args, "--config")+1, slices.Index(args, "--data")+1
	if file == 0 || data == 0 {
		return args, nil
	}
	url, err := databaseOf(args[data])
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(args[file])
	if err != nil {
		return nil, err
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(text, &config); err != nil {
		return args, nil // the server reports it
	}
	if config["store"] == nil {
		config["store"] = json.RawMessage(fmt.Sprintf(`{"url": %q}`, url))
	}
	if text, err = json.Marshal(config); err != nil {
		return nil, err
	}
	args = slices.Clone(args)
	args[file] += ".postgres"
	return args, os.WriteFile(args[file], text, 0o600)
}

// databaseOf returns the URL of the database of a data directory.
func databaseOf(dir string) (string, error) {
	d := &databases
	d.Lock()
	defer d.Unlock()
	if url := d.urls[dir]; url != "" {
		return url, nil
	}
	if d.server == nil {
		server, err := pgtest.Run("max_connections=300")
		if err != nil {
			return "", err
		}
		d.server, d.urls = server, map[string]string{}
	}
	name, err := d.server.NewDatabase()
	if err != nil {
		return "", err
	}
	d.urls[dir] = d.server.URL(name)
	return d.urls[dir], nil
}
