package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// A mutant is one change of a source file.
type mutant struct {
	id   int
	file string // relative to the folder of the package
	line int
	fn   string // the function that contains it
	kind string // what the change is, such as "always true"
	code string // the first line of what is changed
	key  string // place and kind
	out  int    // line in the changed file, for errors of the compiler
}

// A source is a file to which mutants are added. All mutants of a package are compiled at once:
// each is behind a condition that is true only in the run that tries it.
type source struct {
	name    string
	text    []byte
	set     *token.FileSet
	skip    map[string]bool // keys of mutants that do not compile
	next    *int            // id of the next mutant
	mutants []*mutant
	inserts []insert
	fn      string // the function that is being changed
}

// An insert is text at an offset of a source.
type insert struct {
	at     int
	closes bool // belongs to what ends at this offset
	text   string
	mutant *mutant // nil if it is not the first insert of a mutant
}

// change returns the source with its mutants.
func (s *source) change() ([]byte, error) {
	file, err := parser.ParseFile(s.set, s.name, s.text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			s.fn = fn.Name.Name
			s.visit(fn.Body, false)
		}
	}
	slices.SortStableFunc(s.inserts, func(a, b insert) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.closes == b.closes:
			return 0
		case a.closes:
			return -1
		}
		return 1
	})
	var out bytes.Buffer
	at := 0
	for _, in := range s.inserts {
		out.Write(s.text[at:in.at])
		at = in.at
		if in.mutant != nil {
			in.mutant.out = bytes.Count(out.Bytes(), []byte{'\n'}) + 1
		}
		out.WriteString(in.text)
	}
	out.Write(s.text[at:])
	return out.Bytes(), nil
}

// visit adds the mutants of a node and of what it consists of. With condition, the node decides
// whether something happens.
func (s *source) visit(n ast.Node, condition bool) {
	closing := s.open(n, condition)
	switch n := n.(type) {
	case *ast.IfStmt:
		s.visitAll(n.Init)
		s.visit(n.Cond, true)
		s.visitAll(n.Body, n.Else)
	case *ast.ForStmt:
		s.visitAll(n.Init)
		if n.Cond != nil {
			s.visit(n.Cond, true)
		}
		s.visitAll(n.Post, n.Body)
	case *ast.SwitchStmt:
		s.visitAll(n.Init, n.Tag)
		for _, stmt := range n.Body.List {
			clause := stmt.(*ast.CaseClause)
			for _, e := range clause.List {
				s.visit(e, n.Tag == nil)
			}
			s.visitStatements(clause.Body)
		}
	case *ast.BinaryExpr:
		both := n.Op == token.LAND || n.Op == token.LOR
		s.visit(n.X, both)
		s.visit(n.Y, both)
	case *ast.UnaryExpr:
		s.visit(n.X, n.Op == token.NOT)
	case *ast.ParenExpr:
		s.visit(n.X, condition)
	case *ast.BlockStmt:
		s.visitStatements(n.List)
	case *ast.CaseClause:
		s.visitStatements(n.Body) // of a type switch
	case *ast.CommClause:
		s.visitAll(n.Comm)
		s.visitStatements(n.Body)
	case *ast.ArrayType, *ast.StructType, *ast.FuncType, *ast.InterfaceType, *ast.MapType, *ast.ChanType:
	case *ast.GenDecl:
		if n.Tok == token.VAR {
			s.visitParts(n)
		}
	default:
		s.visitParts(n)
	}
	if closing != "" {
		s.inserts = append(s.inserts, insert{at: s.offset(n.End()), closes: true, text: closing})
	}
}

func (s *source) visitAll(nodes ...ast.Node) {
	for _, n := range nodes {
		if n != nil {
			s.visit(n, false)
		}
	}
}

// visitParts visits the nodes directly below n.
func (s *source) visitParts(n ast.Node) {
	ast.Inspect(n, func(part ast.Node) bool {
		if part == nil || part == n {
			return true
		}
		s.visit(part, false)
		return false
	})
}

// visitStatements adds a mutant without the statement for each of a list.
func (s *source) visitStatements(list []ast.Stmt) {
	for _, stmt := range list {
		m := (*mutant)(nil)
		if canGo(stmt) {
			m = s.add(stmt, "left out")
		}
		if m == nil {
			s.visit(stmt, false)
			continue
		}
		s.inserts = append(s.inserts, insert{at: s.offset(stmt.Pos()), text: fmt.Sprintf("if !mutant(%d) { ", m.id), mutant: m})
		s.visit(stmt, false)
		s.inserts = append(s.inserts, insert{at: s.offset(stmt.End()), closes: true, text: " }"})
	}
}

// canGo reports whether a statement can be left out. Locks, logs and traces are not for these tests.
func canGo(stmt ast.Stmt) bool {
	var call ast.Expr
	switch stmt := stmt.(type) {
	case *ast.AssignStmt:
		name, ok := stmt.Lhs[0].(*ast.Ident)
		return stmt.Tok != token.DEFINE && !(ok && name.Name == "_")
	case *ast.BranchStmt:
		return stmt.Tok == token.BREAK || stmt.Tok == token.CONTINUE
	case *ast.IncDecStmt, *ast.SendStmt:
		return true
	case *ast.ExprStmt:
		call = stmt.X
	case *ast.DeferStmt:
		call = stmt.Call
	}
	c, ok := call.(*ast.CallExpr)
	if !ok {
		return false
	}
	name := strings.ToLower(render(c.Fun))
	for _, word := range []string{"lock", "log.", "span.", "trace.", "panic", "memory.", "print"} {
		if strings.Contains(name, word) {
			return false
		}
	}
	return true
}

// render returns a name such as a.b.c.
func render(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return render(e.X) + "." + e.Sel.Name
	}
	return ""
}

// open adds the mutants of an expression and returns what has to follow it.
func (s *source) open(n ast.Node, condition bool) (closing string) {
	e, ok := n.(ast.Expr)
	if !ok {
		return ""
	}
	binary, _ := e.(*ast.BinaryExpr)
	switch {
	case binary != nil && boundaries[binary.Op] != 0:
		truth := s.openTruth(e)
		return s.openOther(e, "boundary", binary, boundaries[binary.Op]) + truth
	case binary != nil && (binary.Op == token.EQL || binary.Op == token.NEQ):
		return s.openTruth(e)
	case binary != nil && arithmetic[binary.Op] != 0 && isPure(binary.X) && isPure(binary.Y):
		return s.openOther(e, "arithmetic", binary, arithmetic[binary.Op])
	case binary != nil:
		return ""
	}
	if name, ok := e.(*ast.Ident); ok && (name.Name == "true" || name.Name == "false") {
		m := s.add(e, "not")
		if m == nil {
			return ""
		}
		s.inserts = append(s.inserts, insert{at: s.offset(e.Pos()), text: "(", mutant: m})
		return fmt.Sprintf(" != mutant(%d))", m.id)
	}
	if not, ok := e.(*ast.UnaryExpr); !condition || ok && not.Op == token.NOT {
		return ""
	}
	if _, ok := e.(*ast.ParenExpr); ok {
		return ""
	}
	return s.openTruth(e)
}

var boundaries = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}

var arithmetic = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.ADD, token.QUO: token.MUL, token.REM: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL}

// openTruth adds the mutants in which a condition is always true, and always false.
func (s *source) openTruth(e ast.Expr) string {
	at := s.offset(e.Pos())
	closing := ""
	if m := s.add(e, "always true"); m != nil {
		s.inserts = append(s.inserts, insert{at: at, text: fmt.Sprintf("(mutant(%d) || ", m.id), mutant: m})
		closing += ")"
	}
	if m := s.add(e, "always false"); m != nil {
		s.inserts = append(s.inserts, insert{at: at, text: fmt.Sprintf("(!mutant(%d) && ", m.id), mutant: m})
		closing += ")"
	}
	return closing
}

// openOther adds the mutant with another operator.
func (s *source) openOther(e ast.Expr, kind string, b *ast.BinaryExpr, op token.Token) string {
	m := s.add(e, kind)
	if m == nil {
		return ""
	}
	x, y := s.slice(b.X.Pos(), b.X.End()), s.slice(b.Y.Pos(), b.Y.End())
	at := s.offset(e.Pos())
	if kind == "arithmetic" {
		s.inserts = append(s.inserts, insert{at: at, text: fmt.Sprintf("mutantOf(%d, ", m.id), mutant: m})
		return fmt.Sprintf(", (%s) %s (%s))", x, op, y)
	}
	s.inserts = append(s.inserts, insert{at: at, text: fmt.Sprintf("(!mutant(%d) && ", m.id), mutant: m})
	return fmt.Sprintf(" || mutant(%d) && %s %s %s)", m.id, x, op, y)
}

// isPure reports whether an expression may be evaluated twice.
func isPure(e ast.Expr) bool {
	pure := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			switch render(n.Fun) {
			case "len", "cap", "min", "max", "int", "int64", "uint64", "byte", "rune", "time.Duration", "float64":
			default:
				pure = false
			}
		case *ast.FuncLit, *ast.CompositeLit:
			pure = false
		case *ast.UnaryExpr:
			pure = pure && n.Op != token.ARROW
		case *ast.BasicLit:
			pure = pure && n.Kind != token.STRING
		}
		return pure
	})
	return pure
}

// add returns a new mutant, or nil if it does not compile.
func (s *source) add(n ast.Node, kind string) *mutant {
	code, _, _ := strings.Cut(s.slice(n.Pos(), n.End()), "\n")
	m := &mutant{file: s.name, line: s.set.Position(n.Pos()).Line, fn: s.fn, kind: kind, code: code}
	m.key = fmt.Sprintf("%s:%d:%d %s %s", s.name, m.line, s.set.Position(n.Pos()).Column, kind, code)
	if s.skip[m.key] {
		return nil
	}
	m.id = *s.next
	*s.next++
	s.mutants = append(s.mutants, m)
	return m
}

func (s *source) offset(pos token.Pos) int { return s.set.Position(pos).Offset }

func (s *source) slice(from, to token.Pos) string {
	return string(s.text[s.offset(from):s.offset(to)])
}
