package search

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func words(text string) (out []string) {
	for _, t := range Tokens(text) {
		out = append(out, t.Text)
	}
	return out
}

func TestTokens(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"words", "The quick  brown-fox, 42!", "the quick brown fox 42"},
		{"apostrophe", "don't", "don t"},
		{"code", "foo_bar(x.y)", "foo bar x y"},
		{"French", "Été à Nîmes; œuvre", "ete a nimes œuvre"},
		{"decomposed accents", "E\u0301te\u0301", "ete"},
		{"German", "Straße GROẞ Übung", "strasse gross ubung"},
		{"Turkish", "İstanbul ISPARTA ısparta", "istanbul isparta isparta"},
		{"Greek", "Ὀδυσσεύς ΟΔΥΣΣΕΥΣ", "οδυσσευσ οδυσσευσ"},
		{"Russian", "Ёлка зелёная", "елка зеленая"},
		{"Vietnamese", "Tiếng Việt", "tieng viet"},
		{"Hebrew", "שָׁלוֹם", "שלום"},
		{"Arabic", "مَرْحَبًا", "مرحبا"},
		{"Hindi keeps its vowels", "हिन्दी में", "हिन्दी में"},
		{"wide characters", "Ｈｅｌｌｏ　１２", "hello 12"},
		{"ligatures and superscripts", "ﬁne x²", "fine x2"},
		{"Chinese", "全文搜索", "全文 文搜 搜索 索"},
		{"Chinese with words", "用Go写代码", "用 go 写代 代码 码"},
		{"Japanese", "データベース。検索", "デー ータ タベ ベー ース ス 検索 索"},
		{"half-width katakana", "ﾃﾞｰﾀ", "デー ータ タ"},
		{"Korean", "한국어 검색", "한국 국어 어 검색 색"},
		{"Thai keeps its marks", "ที่นี่", "ที่นี่ นี่"},
		{"emoji", "ok 👍🏽!", "ok 👍"},
		{"nothing", " ,.;-_*\"", ""},
		{"invalid bytes", "a\xff\xfeb", "a b"},
		{"U+0000", "a\x00b", "a b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(words(c.text), " "); got != c.want {
				t.Errorf("tokens of %q:\n got %q\nwant %q", c.text, got, c.want)
			}
		})
	}
}

func TestTokensAreBounded(t *testing.T) {
	long := Tokens(strings.Repeat("é", 10*MaxToken))
	if len(long) != 1 || len(long[0].Text) != MaxToken || long[0].End != 20*MaxToken {
		t.Errorf("a long word has the tokens %v", long)
	}
	size := 0
	for _, token := range Tokens(strings.Repeat("word 検索 ", maxText/8)) {
		size += len(token.Text)
	}
	if size > maxText || size < maxText-16 {
		t.Errorf("the tokens of a long text have %d bytes", size)
	}
	marks := Tokens("ก" + strings.Repeat("ิ", 10*MaxToken))
	if len(marks) == 0 || len(marks[0].Text) > MaxToken {
		t.Errorf("a character with many marks has tokens of %d bytes", len(marks[0].Text))
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		query, text string
		want        string // the hits in brackets; "" means no match
	}{
		{"quick", "The Quick fox", "The [Quick] fox"},
		{"quick fox", "fox, quick", "[fox], [quick]"},
		{`"quick fox"`, "fox, quick", ""},
		{`"quick fox"`, "a quick, fox", "a [quick, fox]"},
		{"quick cat", "a quick fox", ""},
		{"qui", "quick", ""},
		{"qui*", "quick", "[quick]"},
		{"gpt-4o", "use GPT-4o now", "use [GPT-4o] now"},
		{"gpt-4o", "4o gpt", ""},
		{"foo.ba*", "foo.bar", "[foo.bar]"},
		{`"quick brown`, "brown quick", "[brown] [quick]"},
		{`a" b"c`, "c b a", "[c] [b] [a]"},
		{"“quick fox”", "quick fox", "[quick fox]"},
		{"ete", "Un été", "Un [été]"},
		{"ÉTÉ", "un ete", "un [ete]"},
		{"搜索", "全文搜索引擎", "全文[搜索]引擎"},
		{"文搜索", "全文搜索引擎", "全[文搜索]引擎"},
		{"索文", "全文搜索引擎", ""},
		{"索", "全文搜索", "全文搜[索]"},
		{"全", "全文搜索", "[全文]搜索"},
		{"全文 引擎", "全文搜索引擎", "[全文]搜索[引擎]"},
		{`"全文 引擎"`, "全文搜索引擎", ""},
		{`"全文 引擎"`, "全文 引擎", "[全文 引擎]"},
		{"test测试", "a test测试者", "a [test测试]者"},
		{"ベース", "データベース", "データ[ベース]"},
		{"국어", "한국어를", "한[국어]를"},
		{"👍", "so 👍🏽!", "so [👍🏽]!"},
		{"OR NOT AND NEAR", "and near not or", "[and] [near] [not] [or]"},
		{`col:word ^x {y} (z) -w + '`, "w z y x col word", "[w] [z] [y] [x] [col word]"},
		{"!!!", "anything", ""},
	} {
		t.Run(c.query+" in "+c.text, func(t *testing.T) {
			q, err := Parse(c.query)
			if err != nil {
				t.Fatal(err)
			}
			m, ok := q.Match(Tokens(c.text))
			got := ""
			if ok {
				parts, _, _ := Excerpt(c.text, m.Hits)
				for _, p := range parts {
					if p.Hit {
						p.Text = "[" + p.Text + "]"
					}
					got += p.Text
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q (query %+v)", got, c.want, q)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	if _, err := Parse(strings.Repeat("é", maxQuery)); err != nil {
		t.Error(err)
	}
	if _, err := Parse(strings.Repeat("é", maxQuery+1)); err == nil {
		t.Error("a search of too many characters was accepted")
	}
	many := ""
	for i := range maxWords + 1 {
		many += fmt.Sprint(" w", i)
	}
	if _, err := Parse(many); err == nil {
		t.Error("a search of too many words was accepted")
	}
	if q, err := Parse(strings.Repeat("s ", maxWords+1)); err != nil || len(q.Terms) != 1 {
		t.Errorf("a word that is repeated: %v, %v", q, err)
	}
}

func TestExcerpt(t *testing.T) {
	text := strings.Repeat("before ", 100) + "here is the needle and another needle " + strings.Repeat("after ", 100)
	q, _ := Parse("needle")
	m, _ := q.Match(Tokens(text))
	parts, before, after := Excerpt(text, m.Hits)
	hits, size := 0, 0
	for _, p := range parts {
		size += len(p.Text)
		if p.Hit {
			hits++
			if p.Text != "needle" {
				t.Errorf("the hit is %q", p.Text)
			}
		}
	}
	if hits != 2 || !before || !after || size > excerptBytes || size < excerptBytes/2 {
		t.Errorf("%d hits in %d bytes, cut before %v and after %v: %+v", hits, size, before, after, parts)
	}
}

// Better matches have higher scores, and the order of the terms does not matter.
func TestScore(t *testing.T) {
	score := func(query, text string) int64 {
		q, err := Parse(query)
		if err != nil {
			t.Fatal(err)
		}
		m, ok := q.Match(Tokens(text))
		if !ok {
			t.Fatalf("%q does not match %q", query, text)
		}
		return m.Score
	}
	filler := strings.Repeat(" other", 300)
	if score("fox", "fox fox") <= score("fox", "fox dog") || score("fox", "fox") <= score("fox", "fox"+filler) {
		t.Error("more hits or a shorter text do not have the higher score")
	}
	if score("fox dog", "a fox and dogs dog") != score("dog fox", "a fox and dogs dog") {
		t.Error("the score depends on the order of the terms")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "a", `"a b"* c*`, `"`, "全文 検索", "e\u0301", "\xff\"\xfe*", "ที่", "ǅ ﬃ ½"} {
		f.Add(seed, "some text: "+seed)
	}
	f.Fuzz(func(t *testing.T, query, text string) {
		tokens := Tokens(text)
		at := 0
		for _, token := range tokens {
			if token.Text == "" || !utf8.ValidString(token.Text) || len(token.Text) > MaxToken || token.Start < 0 || token.Start >= token.End || token.End > len(text) || token.Start < at {
				t.Fatalf("token %+v of %q", token, text)
			}
			at = token.Start
			if strings.ContainsAny(token.Text, "\x00\"' \\*") {
				t.Fatalf("the token %q has a character of a query language", token.Text)
			}
			if again := words(token.Text); len(token.Text) < MaxToken/2 && token.run == 0 && !slices.Contains(again, token.Text) {
				t.Fatalf("the token %q is split into %q", token.Text, again)
			}
		}
		q, err := Parse(query)
		if err != nil {
			return
		}
		m, ok := q.Match(tokens)
		if ok != (len(m.Hits) > 0) {
			t.Fatalf("match %v with hits %v", ok, m.Hits)
		}
		parts, before, after := Excerpt(text, m.Hits)
		all := ""
		for _, p := range parts {
			all += p.Text
		}
		if valid := strings.ToValidUTF8(text, "\uFFFD"); !before && !after && utf8.ValidString(text) && all != valid {
			t.Fatalf("the excerpt of %q is %q", text, all)
		}
		// A text is found by itself.
		if whole, err := Parse(text); err == nil && len(whole.Terms) > 0 {
			if _, ok := whole.Match(tokens); !ok {
				t.Fatalf("the query %q, read as %+v, does not find its own text with %q", text, whole, words(text))
			}
		}
	})
}
