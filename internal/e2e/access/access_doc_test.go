package access_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// What docs/access.md begins with lets a device in, though here from loopback.
func TestGuideAccess(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^\$ loquat (.*)$`).FindAllStringSubmatch(string(page), -1)
	if len(commands) < 3 {
		t.Fatalf("docs/access.md shows %d commands", len(commands))
	}
	home := t.TempDir()
	t.Setenv("XDG_DATA_HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	says := func(command string) string {
		t.Helper()
		var out, log strings.Builder
		if err := binary.Run(t.Context(), strings.Fields(command), strings.NewReader(""), &out, &log); err != nil {
			t.Fatalf("loquat %s: %v\n%s", command, err, &log)
		}
		return out.String()
	}
	token := strings.TrimSpace(says(commands[0][1]))
	serve := strings.Replace(commands[1][1], "0.0.0.0:8787", "127.0.0.1:0", 1)
	server := binary.Start(t, []string{"LOQUAT_DEMO=true"}, strings.Fields(serve)...)
	pair := strings.NewReplacer("http://192.168.1.20:8787", server.URL, "THE-TOKEN", token).Replace(commands[2][1])
	code, _, _ := strings.Cut(strings.TrimPrefix(says(pair), "code: "), "\n")
	claimed := binary.Call(t, "POST", server.URL+"/pairing/claim", `{"code": "`+code+`", "device_name": "phone"}`)
	var device loquat.ClaimedDevice
	if err := json.Unmarshal([]byte(claimed), &device); err != nil || !strings.HasPrefix(device.Token, "loq_") {
		t.Fatalf("the claim answers %s", claimed)
	}
	phone, err := client.New(server.URL, client.Options{Token: device.Token})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := phone.CreateSession(t.Context(), loquat.NewSession{}); err != nil {
		t.Errorf("the phone cannot begin a chat: %v", err)
	}
}
