package loquat_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module           = "loquat"
	maxFunctionLines = 62
	maxMethods       = 5
)

// goPackage is the description of a package that `go list` prints.
type goPackage struct {
	Dir, ImportPath, Name, Doc string
	GoFiles, Imports           []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	// Reading every folder makes the test cache notice new folders.
	err := filepath.WalkDir(".", func(_ string, _ fs.DirEntry, err error) error { return err })
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-json=Dir,ImportPath,Name,Doc,GoFiles,Imports", "./...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var list []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	if len(list) < 2 {
		t.Fatalf("go list lists only %d packages", len(list))
	}
	return list
}

// readRanks returns the rank of each folder, from the table of packages in ARCHITECTURE.md. A package
// may import packages of a lower rank, and packages of its own folder.
func readRanks(t *testing.T) map[string]int {
	t.Helper()
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| rank | package | purpose |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	ranks, rank := map[string]int{}, -1
	for line := range strings.Lines(table) {
		cells := strings.SplitN(line, "|", 4)
		if number := strings.TrimSpace(cells[1]); number != "" { // otherwise the rank of the row above
			if rank, err = strconv.Atoi(number); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			folder := rankedFolder(name[1])
			if before, known := ranks[folder]; known && before != rank {
				t.Errorf("ARCHITECTURE.md gives %s the ranks %d and %d", folder, before, rank)
			}
			ranks[folder] = rank
		}
	}
	return ranks
}

// rankedFolder returns the part of an import path that has a rank.
func rankedFolder(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	path = strings.TrimPrefix(path, "internal/")
	name, _, _ := strings.Cut(path, "/")
	return name
}

func inModule(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func TestLayers(t *testing.T) {
	ranks := readRanks(t)
	if len(ranks) < 40 {
		t.Fatalf("the table of packages in ARCHITECTURE.md has %d folders", len(ranks))
	}
	for _, p := range listPackages(t) {
		from := rankedFolder(p.ImportPath)
		rank, known := ranks[from]
		if !known {
			t.Errorf("%s has no rank: add %q to the table of packages in ARCHITECTURE.md", p.ImportPath, from)
			continue
		}
		for _, path := range p.Imports {
			std := !strings.Contains(strings.Split(path, "/")[0], ".")
			switch to := rankedFolder(path); {
			case !inModule(path):
				if p.ImportPath == module && !std {
					t.Errorf("the root package imports %s; it may import only the standard library", path)
				}
			case to != from && ranks[to] >= rank:
				t.Errorf("%s (rank %d) imports %s (rank %d)", p.ImportPath, rank, path, ranks[to])
			}
		}
	}
}

// The feed reads the log for its followers and needs nothing above the store. The service
// does not know its followers, and the bridge needs only the feed.
func TestFeedStandsAlone(t *testing.T) {
	internal := map[string][]string{}
	for _, p := range listPackages(t) {
		for _, path := range p.Imports {
			if name, ok := strings.CutPrefix(path, module+"/internal/"); ok {
				internal[rankedFolder(p.ImportPath)] = append(internal[rankedFolder(p.ImportPath)], name)
			}
		}
	}
	if !slices.Equal(internal["feed"], []string{"store"}) {
		t.Errorf("feed imports %v; it may import only store", internal["feed"])
	}
	for from, forbidden := range map[string][]string{"chat": {"feed"}, "settings": {"feed"}, "bridge": {"chat", "settings", "store"}} {
		if len(internal[from]) == 0 {
			t.Errorf("no package %s was found", from)
		}
		for _, to := range forbidden {
			if slices.Contains(internal[from], to) {
				t.Errorf("%s imports %s", from, to)
			}
		}
	}
}

func TestPackageNamesAndComments(t *testing.T) {
	vague := []string{"util", "utils", "common", "types", "models", "helpers"}
	for _, p := range listPackages(t) {
		if slices.Contains(vague, p.Name) || slices.Contains(vague, filepath.Base(p.Dir)) {
			t.Errorf("%s: the name does not say what the package is for", p.ImportPath)
		}
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func TestCodeShape(t *testing.T) {
	for _, p := range listPackages(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if !ast.IsGenerated(file) {
				files = append(files, file)
			}
		}
		place := func(n ast.Node) string {
			at := fset.Position(n.Pos())
			return p.ImportPath + " " + filepath.Base(at.Filename) + ":" + strconv.Itoa(at.Line)
		}
		checkInterfaces(t, files, place)
		for _, file := range files {
			for _, decl := range file.Decls {
				checkDoc(t, decl, place)
				if fn, ok := decl.(*ast.FuncDecl); ok {
					if lines := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; lines > maxFunctionLines {
						t.Errorf("%s: %s has %d lines; at most %d are allowed", place(fn), fn.Name.Name, lines, maxFunctionLines)
					}
				}
			}
		}
	}
}

// checkInterfaces limits the number of methods of interfaces. It includes the methods of
// an embedded interface of the same package, and counts one of another package as one.
func checkInterfaces(t *testing.T, files []*ast.File, place func(ast.Node) string) {
	named := map[string]*ast.InterfaceType{}
	var all []*ast.InterfaceType
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if it, ok := n.Type.(*ast.InterfaceType); ok {
					named[n.Name.Name] = it
				}
			case *ast.InterfaceType:
				all = append(all, n)
			}
			return true
		})
	}
	var count func(*ast.InterfaceType) int
	count = func(it *ast.InterfaceType) (n int) {
		for _, f := range it.Methods.List {
			name, _ := f.Type.(*ast.Ident)
			switch {
			case len(f.Names) > 0:
				n += len(f.Names)
			case name != nil && named[name.Name] != nil:
				n += count(named[name.Name])
			default:
				n++
			}
		}
		return n
	}
	for _, it := range all {
		if n := count(it); n > maxMethods {
			t.Errorf("%s: the interface has %d methods; at most %d are allowed", place(it), n, maxMethods)
		}
	}
}

// wellKnown are methods that need no comment, because well-known interfaces define them.
var wellKnown = []string{"Error", "Unwrap", "String", "Read", "Write", "ServeHTTP", "MarshalJSON", "UnmarshalJSON", "Len", "Less", "Swap"}

func checkDoc(t *testing.T, decl ast.Decl, place func(ast.Node) string) {
	report := func(n ast.Node, name string) { t.Errorf("%s: %s is exported and has no comment", place(n), name) }
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Doc != nil || !d.Name.IsExported() || !exportedReceiver(d) {
			return
		}
		if d.Recv == nil || !slices.Contains(wellKnown, d.Name.Name) {
			report(d, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					report(s, s.Name.Name)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						report(s, name.Name)
					}
				}
			}
		}
	}
}

// exportedReceiver reports whether fn is a function or a method of an exported type.
func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	exported := true
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			exported = id.IsExported()
			return false
		}
		return true
	})
	return exported
}

// wireForms are the structs with JSON tags that packages other than the root may have, each
// because it is not a noun of the API.
var wireForms = map[string]string{
	"chat.run":             "a part of the column of a request's row",
	"chat.RunSettings":     "a part of the column of a request's row",
	"chat.answerExtra":     "the part of a stored answer that HTTP puts into headers",
	"chat.storedSend":      "the column of a request's row",
	"chat.storedSnapshot":  "the column of a remembered answer",
	"httpapi.imageForm":    "describes a multipart form",
	"httpapi.modelText":    "describes loquat.Model, which marshals itself",
	"httpapi.toolCallText": "describes loquat.ToolCall, which marshals itself",
	"httpapi.functionText": "describes loquat.ToolCall, which marshals itself",
}

// TestNounsStandInTheRoot: what clients send and get has one Go type, in the root package.
// httpapi, chat and client share it, so that a new field touches one struct.
func TestNounsStandInTheRoot(t *testing.T) {
	used := map[string]bool{}
	for _, p := range listPackages(t) {
		switch rankedFolder(p.ImportPath) {
		case "httpapi", "chat", "client", "settings", "feed":
		default:
			continue
		}
		fset := token.NewFileSet()
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok || !hasJSONTags(spec.Type) {
					return true
				}
				noun := p.Name + "." + spec.Name.Name
				used[noun] = true
				if wireForms[noun] == "" {
					t.Errorf("%s: %s has JSON tags: move it to the root package, or say in wireForms why it is not a noun of the API", fset.Position(spec.Pos()), noun)
				}
				return true
			})
		}
	}
	for noun := range wireForms {
		if !used[noun] {
			t.Errorf("wireForms lists %s, which does not exist", noun)
		}
	}
}

func hasJSONTags(e ast.Expr) bool {
	s, ok := e.(*ast.StructType)
	return ok && slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool { return f.Tag != nil && strings.Contains(f.Tag.Value, `json:"`) })
}
