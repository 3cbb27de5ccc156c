//go:build unix

package scale_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"loquat/internal/e2e/binary"
)

// The modules whose files have the published schemas: of the API of Kubernetes, as the project's
// own program for validation has them, and of Compose.
const (
	kubernetesModule  = "sigs.k8s.io/kubectl-validate@v0.0.4"
	kubernetesSchemas = "pkg/openapiclient/builtins/1.30"
	composeModule     = "github.com/compose-spec/compose-go/v2@v2.16.2"
	composeSchema     = "schema/compose-spec.json"
)

// moduleDir returns the folder of a module, which it downloads if needed.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var answer struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &answer); err != nil || jsonErr != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("download %s: %v %s", module, err, out)
		}
		t.Skipf("skipped: %s, which has the schema, cannot be downloaded: %s", module, out)
	}
	return answer.Dir
}

func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents decodes the documents of a YAML file into what encoding/json would decode.
func documents(text string) (all []map[string]any, err error) {
	for in := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc map[string]any
		if err := in.Decode(&doc); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		text, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		var plain map[string]any
		if err := json.Unmarshal(text, &plain); err != nil {
			return nil, err
		}
		all = append(all, plain)
	}
}

// resolve makes a schema that can validate.
func resolve(schema any) (*jsonschema.Resolved, error) {
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	return s.Resolve(&jsonschema.ResolveOptions{BaseURI: "https://schemas.example.org/"})
}

// kubernetes validates objects by the API's schema, which the API server has, and refuses unknown
// fields, which the API server would drop.
type kubernetes struct {
	dir   string
	kinds map[string]*jsonschema.Resolved
}

func (k *kubernetes) validate(text string) error {
	docs, err := documents(text)
	if err != nil {
		return err
	}
	if len(docs) == 0 {
		return errors.New("there is no object")
	}
	for _, doc := range docs {
		schema, err := k.schema(fmt.Sprint(doc["apiVersion"]), fmt.Sprint(doc["kind"]))
		if err != nil {
			return err
		}
		if err := schema.Validate(doc); err != nil {
			return fmt.Errorf("%v: %w", doc["kind"], err)
		}
	}
	return nil
}

func (k *kubernetes) schema(version, kind string) (*jsonschema.Resolved, error) {
	if s := k.kinds[version+kind]; s != nil {
		return s, nil
	}
	folder := "apis"
	if !strings.Contains(version, "/") {
		folder = "api"
	}
	text, err := os.ReadFile(filepath.Join(k.dir, folder, filepath.FromSlash(version)+".json"))
	if err != nil {
		return nil, fmt.Errorf("apiVersion %s: %w", version, err)
	}
	var document struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/$defs/")), &document); err != nil {
		return nil, err
	}
	defs := document.Components.Schemas
	for _, def := range defs {
		if def["properties"] != nil && def["additionalProperties"] == nil {
			def["additionalProperties"] = false
		}
	}
	for name, def := range defs {
		kinds, _ := def["x-kubernetes-group-version-kind"].([]any)
		for _, one := range kinds {
			group := one.(map[string]any)
			if strings.TrimPrefix(fmt.Sprint(group["group"], "/", group["version"]), "/") == version && group["kind"] == kind {
				s, err := resolve(map[string]any{"$ref": "#/$defs/" + name, "$defs": defs})
				k.kinds[version+kind] = s
				return s, err
			}
		}
	}
	return nil, fmt.Errorf("%s has no kind %s", version, kind)
}

// edit is a mistake in a file that its schema must find.
type edit struct{ what, from, to string }

func (e edit) in(t *testing.T, text string) string {
	t.Helper()
	if strings.Count(text, e.from) == 0 {
		t.Fatalf("the file has no %q", e.from)
	}
	return strings.Replace(text, e.from, e.to, 1)
}

// deploy/kubernetes.yaml is valid, and the validation finds mistakes.
func TestKubernetesManifests(t *testing.T) {
	k := &kubernetes{filepath.Join(moduleDir(t, kubernetesModule), kubernetesSchemas), map[string]*jsonschema.Resolved{}}
	text := deployed(t, "kubernetes.yaml")
	if err := k.validate(text); err != nil {
		t.Fatal(err)
	}
	for _, e := range []edit{
		{"a text instead of a number", "replicas: 3", "replicas: three"},
		{"an unknown field", "maxSurge: 1", "maxSurges: 1"},
		{"a required field that is missing", "containerPort: 8787", "name: other"},
		{"an unknown kind", "kind: PodDisruptionBudget", "kind: PodDisruptions"},
		{"a version that no server has", "apiVersion: apps/v1", "apiVersion: apps/v7"},
		{"a wrong type deep inside", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: [true]"},
	} {
		if err := k.validate(e.in(t, text)); err == nil {
			t.Errorf("%s is valid", e.what)
		}
	}
}

// deploy/compose.yaml is valid, and the validation finds mistakes.
func TestComposeFile(t *testing.T) {
	schema, err := os.ReadFile(filepath.Join(moduleDir(t, composeModule), filepath.FromSlash(composeSchema)))
	if err != nil {
		t.Fatal(err)
	}
	var plain map[string]any
	if err := json.Unmarshal(schema, &plain); err != nil {
		t.Fatal(err)
	}
	resolved, err := resolve(plain)
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text string) error {
		docs, err := documents(text)
		if err != nil {
			return err
		}
		return resolved.Validate(docs[0])
	}
	text := deployed(t, "compose.yaml")
	if err := validate(text); err != nil {
		t.Fatal(err)
	}
	for _, e := range []edit{
		{"a list instead of a text", "restart: unless-stopped", "restart: [unless-stopped]"},
		{"an unknown field", "stop_grace_period: 30s", "stop_grace: 30s"},
		{"an unknown condition", "condition: service_healthy", "condition: healthy"},
		{"a list instead of an object", "secrets:\n  database-password:\n    file: ./database-password", "secrets:\n  - database-password"},
	} {
		if err := validate(e.in(t, text)); err == nil {
			t.Errorf("%s is valid", e.what)
		}
	}
	secretsAreIgnored(t, text)
}

// secretsAreIgnored checks that neither a commit nor an image takes the files of the secrets, which are in the
// root of the repository.
func secretsAreIgnored(t *testing.T, text string) {
	t.Helper()
	docs, err := documents(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, ignoring := range []struct{ file, root string }{{".gitignore", "/"}, {".dockerignore", ""}} {
		patterns, err := os.ReadFile(filepath.Join("..", "..", "..", ignoring.file))
		if err != nil {
			t.Fatal(err)
		}
		for name := range at(t, docs[0], "secrets").(map[string]any) {
			file, ok := strings.CutPrefix(at(t, docs[0], "secrets", name, "file").(string), "./")
			if !ok || !slices.Contains(strings.Split(string(patterns), "\n"), ignoring.root+file) {
				t.Errorf("%s does not have the secret %s", ignoring.file, file)
			}
		}
	}
}

// at returns what is at a path in a document, such as "spec", "template".
func at(t *testing.T, doc map[string]any, path ...string) any {
	t.Helper()
	var v any = doc
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok || m[key] == nil {
			t.Fatalf("%v has no %s", doc["kind"], strings.Join(path, "."))
		}
		v = m[key]
	}
	return v
}

// What a schema cannot see: the objects find each other, the pod has the time that the server
// takes to stop, and the server accepts its configuration.
func TestManifestsAgree(t *testing.T) {
	docs, err := documents(deployed(t, "kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]map[string]any{}
	for _, doc := range docs {
		kinds[fmt.Sprint(doc["kind"])] = doc
	}
	deployment := kinds["Deployment"]
	labels := at(t, deployment, "spec", "template", "metadata", "labels").(map[string]any)
	for what, selector := range map[string]any{
		"Deployment": at(t, deployment, "spec", "selector", "matchLabels"), "Service": at(t, kinds["Service"], "spec", "selector"),
		"PodDisruptionBudget": at(t, kinds["PodDisruptionBudget"], "spec", "selector", "matchLabels"),
	} {
		if !maps.Equal(selector.(map[string]any), labels) {
			t.Errorf("%s selects %v, and the pods have %v", what, selector, labels)
		}
	}
	config := at(t, kinds["ConfigMap"], "data", "loquat.json").(string)
	var parsed struct {
		Server struct {
			Grace float64 `json:"shutdown_grace_seconds"`
		}
	}
	if err := json.Unmarshal([]byte(config), &parsed); err != nil {
		t.Fatal(err)
	}
	container := at(t, deployment, "spec", "template", "spec", "containers").([]any)[0].(map[string]any)
	pause := at(t, container, "lifecycle", "preStop", "sleep", "seconds").(float64)
	if least, has := pause+parsed.Server.Grace+10, at(t, deployment, "spec", "template", "spec", "terminationGracePeriodSeconds").(float64); has < least {
		t.Errorf("the pod is killed after %vs; it needs %vs", has, least)
	}
	secrets := map[string]string{}
	for name, value := range at(t, kinds["Secret"], "stringData").(map[string]any) {
		secrets[name] = value.(string)
	}
	if code, stderr := checkedConfig(t, config, "/run/secrets/loquat/", secrets); code != binary.ExitUsage || !strings.Contains(stderr, ": 1 problem") {
		t.Errorf("without a token of the operator: exit code %d: %s", code, stderr)
	}
	secrets["admin-token"] = strings.Repeat("0123456789abcdef", 3)
	checkConfig(t, config, "/run/secrets/loquat/", secrets)
	if at(t, container, "securityContext", "readOnlyRootFilesystem") == true && !slices.ContainsFunc(at(t, container, "volumeMounts").([]any), mountsTmp) {
		t.Error("the root of the pod is read-only, and the pod has no /tmp")
	}
	probe := func(name, field string) float64 { return at(t, container, name, field).(float64) }
	if seconds := probe("startupProbe", "periodSeconds") * probe("startupProbe", "failureThreshold"); seconds < 600 {
		t.Errorf("a pod that upgrades the schema is killed after %vs", seconds)
	}
}

// mountsTmp reports whether a volume is mounted at /tmp.
func mountsTmp(mount any) bool { return mount.(map[string]any)["mountPath"] == "/tmp" }

// The server accepts the configuration of deploy/compose.yaml.
func TestComposeConfiguration(t *testing.T) {
	docs, err := documents(deployed(t, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := at(t, docs[0], "configs", "loquat", "content").(string)
	if node := at(t, docs[0], "services", "node1").(map[string]any); node["read_only"] == true && !reflect.DeepEqual(node["tmpfs"], []any{"/tmp"}) {
		t.Error("the root of a node is read-only, and the node has no /tmp")
	}
	secrets := map[string]string{}
	for name := range at(t, docs[0], "secrets").(map[string]any) {
		secrets[name] = strings.Repeat("0123456789abcdef", 3)
	}
	checkConfig(t, strings.ReplaceAll(config, "$${", "${"), "/run/secrets/", secrets)
	grace, err := time.ParseDuration(at(t, docs[0], "services", "node1", "stop_grace_period").(string))
	if err != nil || grace < 20*time.Second {
		t.Errorf("a node is killed after %s, %v; a node takes 10 s for its requests and some for the rest", grace, err)
	}
}

// checkConfig checks that the program accepts a configuration whose secrets are files in a folder.
func checkConfig(t *testing.T, config, folder string, secrets map[string]string) {
	t.Helper()
	if code, stderr := checkedConfig(t, config, folder, secrets); code != binary.ExitOK {
		t.Errorf("config check: exit code %d: %s", code, stderr)
	}
}

// checkedConfig lets the program check a configuration whose secrets are files in a folder.
func checkedConfig(t *testing.T, config, folder string, secrets map[string]string) (code int, stderr string) {
	t.Helper()
	dir := t.TempDir()
	for name, value := range secrets {
		binary.WriteFile(t, filepath.Join(dir, name), value)
		if !strings.Contains(config, folder+name) {
			t.Errorf("the configuration does not use the secret %s", name)
		}
	}
	file := filepath.Join(dir, "loquat.json")
	binary.WriteFile(t, file, strings.ReplaceAll(config, folder, dir+"/"))
	return binary.Exit(t, "config", "check", "--config", file)
}
