package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/e2e/binary"
)

// The health check finds the server by the same configuration, also behind TLS and a public URL.
func TestHealth(t *testing.T) {
	dir := t.TempDir()
	certificate, key := binary.SelfSigned(t, 1)
	binary.WriteFiles(t, dir, map[string]string{"cert.pem": certificate, "key.pem": key})
	for name, server := range map[string]string{
		"plain": `"public_url": "https://chat.example.org"`,
		"tls":   fmt.Sprintf(`"tls": {"cert_file": %q, "key_file": %q}`, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")),
	} {
		file := filepath.Join(dir, name+".json")
		text := `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m"}}, "server": {` + server + `}}`
		binary.WriteFile(t, file, text)
		url, stop, err := startServer(t.Context(), serveOptions{config: file, listen: "127.0.0.1:0", data: filepath.Join(dir, name)}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		_, address, _ := strings.Cut(url, "://")
		for _, flag := range []string{"", " --ready"} {
			var out strings.Builder
			err := run(t.Context(), strings.Fields("health --config "+file+" --listen "+address+flag), strings.NewReader(""), &out, io.Discard)
			if err != nil || !strings.Contains(out.String(), `{"`) {
				t.Errorf("%s%s: %v %s", name, flag, err, out.String())
			}
		}
		binary.WriteFile(t, file, `{`)
		var said strings.Builder
		if err := run(t.Context(), strings.Fields("health --config "+file+" --listen "+address), strings.NewReader(""), io.Discard, &said); err != nil || !strings.Contains(said.String(), "would not start again") {
			t.Errorf("%s with a broken file: %v %s", name, err, &said)
		}
		stop()
		if err := run(t.Context(), strings.Fields("health --config "+file+" --listen "+address), strings.NewReader(""), io.Discard, io.Discard); err == nil {
			t.Errorf("%s: it passes although the server has stopped", name)
		}
	}
}
