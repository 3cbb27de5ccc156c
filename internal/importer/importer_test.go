package importer_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/archive/archivetest"
	"loquat/internal/importer"
)

var update = flag.Bool("update", false, "write the expected results")

// options returns options whose files are in a directory of the test.
func options(t testing.TB) importer.Options {
	dir := t.TempDir()
	return importer.Options{MaxImage: 1 << 20, AgentID: "default", CreateTemp: func() (*os.File, error) { return os.CreateTemp(dir, "") }}
}

// describe returns what a file has, for people.
func describe(t testing.TB, in io.Reader) string {
	t.Helper()
	f, err := importer.Open(in, options(t))
	if err != nil {
		return "cannot be opened: " + err.Error()
	}
	defer f.Close()
	var b strings.Builder
	for item, err := range f.Sessions() {
		if err != nil {
			fmt.Fprintf(&b, "END %v\n", err)
			break
		}
		describeItem(t, &b, item)
	}
	return "FORMAT " + f.Format + "\n" + b.String()
}

func describeItem(t testing.TB, b *strings.Builder, item archive.Item) {
	t.Helper()
	if item.Err != nil {
		fmt.Fprintf(b, "\nERROR %s: %v\n", item.Place, item.Err)
		return
	}
	s := item.Session
	metadata, err := s.Metadata.Encode()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "\nSESSION %s %s %s %s\n%s\n", s.SessionID, s.AgentID, s.CreatedAt.Format("2006-01-02T15:04:05.999999Z07:00"), s.UpdatedAt.Format("2006-01-02T15:04:05.999999Z07:00"), metadata)
	for _, image := range s.Images {
		content, err := image.Open()
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, content)
		if err = errors.Join(err, content.Close()); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "IMAGE %s %q %d bytes\n", image.AssetID, image.Name, n)
	}
	describeMessages(t, b, "", s.Messages)
	for i, a := range s.Alternatives {
		fmt.Fprintf(b, "ALTERNATIVE %d at %d within %d %s in place: %v\n", i, a.Index, a.Within, a.CreatedAt.Format("15:04:05"), a.InPlace)
		describeMessages(t, b, "  ", a.Messages)
	}
	for _, n := range item.Notes {
		fmt.Fprintf(b, "NOTE %s\n", n)
	}
}

func describeMessages(t testing.TB, b *strings.Builder, indent string, messages []loquat.Message) {
	t.Helper()
	for _, m := range messages {
		metadata, err := m.Metadata.Encode()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "%s%s %s %s %q %s\n", indent, m.CreatedAt.Format("15:04:05"), m.ID, m.Role, m.Content, metadata)
	}
}

// zipOf returns a ZIP file with these files.
func zipOf(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range files {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func picture(t testing.TB) []byte {
	t.Helper()
	content, err := archivetest.Image(3).Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func example(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The examples have every feature of their format. ChatGPT's and Claude's come in ZIP files with
// images.
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		name string
		file []byte
	}{
		{"chatgpt", zipOf(t, map[string][]byte{"export/conversations.json": example(t, "chatgpt.json"), "export/user-1/file-Plum01-plums.png": picture(t), "chat.html": []byte("<html>")})},
		{"claude", zipOf(t, map[string][]byte{"conversations.json": example(t, "claude.json"), "files/f0f0.png": picture(t), "users.json": []byte("[]")})},
		{"librechat", example(t, "librechat.json")},
		{"open-webui", example(t, "open-webui.json")},
	} {
		got := describe(t, bytes.NewReader(c.file))
		path := filepath.Join("testdata", c.name+".want")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want := string(example(t, c.name+".want")); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, want)
		}
		if again := describe(t, bytes.NewReader(c.file)); again != got {
			t.Errorf("%s: another reading gives\n%s", c.name, again)
		}
	}
}

// The file is found out to be of a format by its content, also if it has a list where others have
// a single conversation, or one where they have a list.
func TestOneOrMany(t *testing.T) {
	const one = `{"conversationId": "1", "messages": [{"messageId": "a", "isCreatedByUser": true, "text": "Hi"}]}`
	for text, want := range map[string]int{one: 1, "[" + one + "," + one + "]": 2} {
		if got := describe(t, strings.NewReader(text)); strings.Count(got, "SESSION librechat-1") != want {
			t.Error(got)
		}
	}
	claude := `{"uuid": "1", "chat_messages": [{"uuid": "2", "sender": "human", "text": "Hi"}]}`
	if got := describe(t, strings.NewReader(claude)); !strings.Contains(got, `message`) && !strings.Contains(got, "SESSION claude-1") {
		t.Error(got)
	}
}

// What cannot be read is named by its place, and the rest goes on.
func TestFaultyConversations(t *testing.T) {
	const good = `{"uuid": "%s", "chat_messages": [{"uuid": "2", "sender": "human", "text": "Hi"}]}`
	deep := strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000)
	for name, c := range map[string]struct{ text, want string }{
		"no object":      {`7`, "is not a conversation"},
		"other object":   {`{"a": 1}`, "is not a conversation"},
		"wrong type":     {`{"chat_messages": 7}`, "cannot be read"},
		"deep":           {`{"chat_messages": [], "x": ` + deep + `}`, "is nested too deep"},
		"deep input":     {`{"uuid": "d", "chat_messages": [{"sender": "assistant", "content": [{"type": "tool_use", "input": 1}], "x": [` + deep[:5000] + `}]}`, "is not valid JSON"},
		"many values":    {`{"chat_messages": [` + strings.Repeat("{},", 500_000) + `{}]}`, "has more than 1000000 values"},
		"wrong encoding": {"{\"chat_messages\": [], \"name\": \"Gr\xfc\xdfe\"}", "is not in UTF-8"},
		"twice":          {`{"chat_messages": [], "uuid": "1", "uuid": "2"}`, "is given twice"},
	} {
		text := "[" + fmt.Sprintf(good, "first") + ",\n" + c.text + ",\n" + fmt.Sprintf(good, "last") + "]"
		got := describe(t, strings.NewReader(text))
		if name != "deep input" && !strings.Contains(got, "SESSION claude-last") || !strings.Contains(got, "SESSION claude-first") {
			t.Errorf("%s: %s", name, got)
		}
		if name != "deep input" && (!strings.Contains(got, "ERROR [1], line 2") || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %.2000s", name, got)
		}
	}
}

func TestUnreadableFiles(t *testing.T) {
	whole := zipOf(t, map[string][]byte{"conversations.json": example(t, "claude.json")})
	bomb := zipOf(t, map[string][]byte{"conversations.json": append([]byte(`[{"uuid": "1", "chat_messages": []},`), bytes.Repeat([]byte(" "), 40<<20)...)})
	for name, c := range map[string]struct {
		file string
		want string
	}{
		"empty":             {"", "is empty"},
		"space":             {" \n ", "ends too early"},
		"page":              {"\n<!DOCTYPE html><p>Sign in", "is an HTML or XML page"},
		"gzip":              {"\x1f\x8b\x08\x00", "is compressed with gzip"},
		"tar":               {strings.Repeat("a", 257) + "ustar\x0000", "is a tar file"},
		"two texts":         {`[{"uuid": "1", "chat_messages": []}]` + "\n[]", "has '[' after the end, in line 2"},
		"many other values": {"[" + strings.Repeat("null,", 200) + `{"uuid": "1", "chat_messages": []}]`, "docs/moving-in.md"},
		"encrypted":         {string(encrypted(zipOf(t, map[string][]byte{"conversations.json": []byte("[]")}))), "has conversations.json, which is encrypted"},
		"text":              {"hello", "docs/moving-in.md"},
		"other JSON":        {`[{"a": 1}]`, "docs/moving-in.md"},
		"UTF-16":            {"\xff\xfe[\x00", "UTF-16"},
		"cut JSON":          {string(example(t, "claude.json"))[:2000], "END ends too early"},
		"cut ZIP":           {string(whole[:len(whole)-30]), "cut off"},
		"broken ZIP":        {"PK" + strings.Repeat("x", 100), "cut off"},
		"ZIP of others":     {string(zipOf(t, map[string][]byte{"a.txt": []byte("[]"), "b/.c.json": nil})), "without conversations.json"},
		"compressed a lot":  {string(bomb), "more than 200 times"},
		"paths that leave":  {string(zipOf(t, map[string][]byte{"../../conversations.json": []byte(`[{"uuid": "1", "chat_messages": []}]`)})), "SESSION claude-1"},
		"many files":        {string(manyFiles()), "at most 200000"},
	} {
		if got := describe(t, strings.NewReader(c.file)); !strings.Contains(got, c.want) {
			t.Errorf("%s: %.500s; want %q", name, got, c.want)
		}
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)/3] ^= 0xff
	if got := describe(t, bytes.NewReader(damaged)); !strings.Contains(got, "conversations.json") {
		t.Errorf("a damaged file: %.500s", got)
	}
}

// allocatedBytes returns how many bytes the program allocates while do runs.
func allocatedBytes(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A message of very many parts would be copied once for each of them, which takes hours for a file of a few MB.
func TestMessagesOfManyParts(t *testing.T) {
	many := func(n int, part string) string { return strings.Repeat(part+",", n-1) + part }
	claude := func(n int) string {
		return `[{"uuid": "1", "chat_messages": [{"uuid": "2", "sender": "human", "content": [` + many(n, `{"type": "text", "text": "a"}`) + `]}]}]`
	}
	for name, file := range map[string]string{
		"texts":    claude(15_000),
		"thoughts": `[{"uuid": "1", "chat_messages": [{"uuid": "2", "sender": "assistant", "content": [` + many(15_000, `{"type": "thinking", "thinking": "a"}`) + `]}]}]`,
		"images": `[{"id": "1", "chat": {"history": {"currentId": "m", "messages": {"m": {"id": "m", "parentId": null, "childrenIds": [], "role": "user", "content": "hi", "files": [` +
			many(4000, `{"type": "image", "url": "https://example.org/a"}`) + `]}}}}}]`,
		"citations that double a text": `[{"id": "1", "mapping": {"m": {"id": "m", "message": {"id": "m", "author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["\ue200"]},
			"metadata": {"content_references": [` + many(40, `{"matched_text": "\ue200", "alt": "\ue200\ue200"}`) + `]}}}}}]`,
		"attachments of a long text": `[{"id": "1", "mapping": {"m": {"id": "m", "message": {"id": "m", "author": {"role": "user"}, "content": {"content_type": "text", "parts": ["` + strings.Repeat("x", 4<<20) + `"]},
			"metadata": {"attachments": [` + many(4000, `{"id": "f", "mime_type": "image/png"}`) + `]}}}}}]`,
	} {
		if got := describe(t, strings.NewReader(file)); !strings.Contains(got, "ERROR") || !strings.Contains(got, "too many parts") {
			t.Errorf("%s: %.300s", name, got)
		}
	}
	deep := func(levels, leaves int) string {
		return `[{"conversationId": "1", "title": "t", "endpoint": "openAI", "recursive": true, "messages": [` +
			strings.Repeat(`{"messageId": "m", "isCreatedByUser": true, "text": "x", "children": [`, levels) + many(leaves, `{}`) + strings.Repeat(`]}`, levels) + `]}]`
	}
	allocated := allocatedBytes(func() { _ = describe(t, strings.NewReader(deep(2000, 5000))) })
	if allocated > 1<<30 {
		t.Errorf("a deep tree of 100 KB allocates %d bytes", allocated)
	}
	if got := describe(t, strings.NewReader(claude(2000))); !strings.Contains(got, "SESSION claude-1") {
		t.Errorf("2,000 parts: %.300s", got)
	}
}

// repetitions are conversations that have a value of 1 MB once, which many messages get.
func repetitions() map[string]struct{ file, want string } {
	long := strings.Repeat("x", 1<<20)
	children := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	answers := children(`, "a%d": {"parent": "t", "message": {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["a"]}}}`, 1000)
	results := children(`, "a%d": {"parent": "t", "message": {"author": {"role": "tool", "name": "python"}, "content": {"content_type": "text", "parts": ["a"]}}}`, 1000)
	claude := children(`{"uuid": "%d", "sender": "assistant", "text": "a"},`, 1500)
	outputs := children(`{"type": "function_call_output", "call_id": "c", "output": "%d"},`, 1500)
	var chain strings.Builder
	for i := range 3000 { // each thought has an answer, and each answer has all thoughts before
		fmt.Fprintf(&chain, `, "n%d": {"parent": "n%d", "message": {"author": {"role": "assistant"}, "content": {"content_type": "thoughts", "thoughts": [{"content": %q}]}}}`, i, i-1, long[:1000])
		fmt.Fprintf(&chain, `, "a%d": {"parent": "n%[1]d", "message": {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["a"]}}}`, i)
	}
	logs := children(`{"type": "logs", "logs": "%0100d"},`, 10_000)
	const refused = "would be repeated in too many messages"
	return map[string]struct{ file, want string }{
		"reasoning":          {`[{"id": "1", "mapping": {"t": {"message": {"author": {"role": "assistant"}, "content": {"content_type": "thoughts", "thoughts": [{"content": "` + long + `"}]}}}` + answers + `}}]`, refused},
		"reasoning in parts": {`[{"id": "1", "mapping": {"x": {}` + chain.String() + `}}]`, refused},
		"id of a tool call": {`[{"id": "1", "mapping": {"t": {"message": {"id": "` + long + `", "recipient": "python", "author": {"role": "assistant"}, "content": {"content_type": "code", "text": "1"}}}` +
			results + `}}]`, refused},
		"logs of code": {`[{"conversationId": "1", "messages": [{"messageId": "m", "content": [{"type": "tool_call", "tool_call": {"id": "c", "code_interpreter": {"input": "1", "outputs": [` +
			strings.TrimSuffix(logs, ",") + `]}}}]}]}]`, "SESSION librechat-1"},
		"model":        {`[{"uuid": "1", "model": "` + long + `", "chat_messages": [` + strings.TrimSuffix(claude, ",") + `]}]`, "SESSION claude-1"},
		"name of tool": {`[{"id": "1", "chat": {"messages": [{"id": "m", "role": "assistant", "output": [{"type": "function_call", "call_id": "c", "name": "` + long + `"},` + strings.TrimSuffix(outputs, ",") + `]}]}}]`, "SESSION open-webui-1"},
	}
}

// A value that is in a file once must not fill the memory because many messages get a copy of it.
func TestValuesOfManyMessages(t *testing.T) {
	for name, c := range repetitions() {
		var got string
		allocated := allocatedBytes(func() { got = describe(t, strings.NewReader(c.file)) })
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %.300s; want %q", name, got, c.want)
		}
		if allocated > 1<<30 {
			t.Errorf("%s: a file of %d bytes allocates %d bytes", name, len(c.file), allocated)
		}
	}
}

// Reasoning of ChatGPT in many parts is whole, and the time for it is linear.
func TestReasoningInManyParts(t *testing.T) {
	var b strings.Builder
	for i := range 8000 {
		fmt.Fprintf(&b, `"n%d": {"parent": "n%d", "message": {"author": {"role": "assistant"}, "content": {"content_type": "thoughts", "thoughts": [{"summary": "%[1]d", "content": "%[3]s"}]}}}, `, i, i-1, strings.Repeat("x", 200))
	}
	item := readOne(t, options(t), `{"id": "1", "mapping": {`+b.String()+`"a": {"parent": "n7999", "message": {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["a"]}}}}}`)
	if n := len(item.Session.Messages); n != 1 || strings.Count(item.Session.Messages[0].Metadata.String(loquat.MetaReasoning), "\n\n") != 7999 {
		t.Errorf("%d messages", n)
	}
}

// openWebUIAnswer returns an export of Open WebUI with one answer.
func openWebUIAnswer(t testing.TB, id, rest string) string {
	t.Helper()
	return fmt.Sprintf(`[{"id": "1", "chat": {"history": {"currentId": %q, "messages": {%[1]q: {"role": "assistant", %s}}}}}]`, id, rest)
}

// Blocks in an answer of Open WebUI are read in the same time whether or not their summaries are closed. With a search
// to the end of the answer for each block the ratio is over 100.
func TestDetailsWithoutEndOfSummary(t *testing.T) {
	const size = 1 << 20
	fastest := func(block string) time.Duration {
		content := strings.Repeat(block, size/len(block))
		file := openWebUIAnswer(t, "m", `"content": `+string(loquat.Quote(content)))
		least := time.Hour
		for range 2 {
			begin := time.Now()
			_ = describe(t, strings.NewReader(file))
			least = min(least, time.Since(begin))
		}
		return least
	}
	ordinary := fastest(`<details type="reasoning">A summary</details>`)
	for _, block := range []string{`<details type="reasoning"><summary></details>`, `<details type="reasoning"`, `<details type="reasoning">`, `<details type="thoughts">`} {
		if got := fastest(block); got > 10*ordinary {
			t.Errorf("%s takes %v, and ordinary blocks %v", block, got, ordinary)
		}
	}
}

// Blocks are found also next to things that only look like them.
func TestDetails(t *testing.T) {
	content := `a <details type="other">b</details> <details type="reasoning" done="true">` + "\n" +
		`<summary>S</summary>` + "\n> c\n> d\n" + `</details> e <details type="reasoning">f <summary>g</summary></details> h <details type="reasoning"> i`
	item := readOne(t, options(t), openWebUIAnswer(t, "m", `"content": `+string(loquat.Quote(content))))
	m := item.Session.Messages[0]
	if want := "a <details type=\"other\">b</details>\n\ne\n\nh <details type=\"reasoning\"> i"; m.Content != want {
		t.Errorf("content %q, want %q", m.Content, want)
	}
	if got, want := m.Metadata.String(loquat.MetaReasoning), "c\nd\n\nf <summary>g</summary>"; got != want {
		t.Errorf("reasoning %q, want %q", got, want)
	}
}

// The place of a message with a long id is short. Otherwise each of its parts would copy the id.
func TestLongIDs(t *testing.T) {
	id := strings.Repeat("x", 1<<20)
	parts := strings.Repeat(`{"type": "strange"},`, 1000) + `{"type": "strange"}`
	for name, file := range map[string]string{
		"Open WebUI": openWebUIAnswer(t, id, `"output": [`+parts+`]`),
		"LibreChat":  `[{"conversationId": "1", "messages": [{"messageId": "` + id + `", "content": [` + parts + `]}]}]`,
	} {
		allocated := allocatedBytes(func() { _ = describe(t, strings.NewReader(file)) })
		if allocated > 200<<20 {
			t.Errorf("%s: 1,000 parts of a message with an id of 1 MB allocate %d bytes", name, allocated)
		}
	}
}

// encrypted returns a ZIP file that says that its files are encrypted.
func encrypted(file []byte) []byte {
	for head, flags := range map[string]int{"PK\x03\x04": 6, "PK\x01\x02": 8} {
		for i := bytes.Index(file, []byte(head)); i >= 0; {
			file[i+flags] |= 1
			next := bytes.Index(file[i+1:], []byte(head))
			if next < 0 {
				break
			}
			i += 1 + next
		}
	}
	return file
}

// ZIP files have the conversations in several files, and under other names. A file that cannot be
// read is named, and the others are read.
func TestZIPFiles(t *testing.T) {
	talk := func(id string) []byte {
		return []byte(`[{"uuid": "` + id + `", "chat_messages": [{"uuid": "2", "sender": "human", "text": "Hi"}]}]`)
	}
	archived := archivetest.Write(t, archive.Session{SessionID: "own", AgentID: "default"})
	for name, c := range map[string]struct {
		files map[string][]byte
		want  []string
	}{
		"two":          {map[string][]byte{"a/conversations.json": talk("1"), "b/conversations.json": talk("2")}, []string{"SESSION claude-1", "SESSION claude-2"}},
		"numbered":     {map[string][]byte{"conversations-000.json": talk("1"), "Conversations-001.JSON": talk("2"), "users.json": talk("3")}, []string{"SESSION claude-1", "SESSION claude-2"}},
		"other names":  {map[string][]byte{"My chat.json": talk("1"), "__MACOSX/._My chat.json": []byte("\x00"), "notes.txt": nil}, []string{"SESSION claude-1"}},
		"one is cut":   {map[string][]byte{"a/conversations.json": talk("1")[:20], "b/conversations.json": talk("2")}, []string{"SESSION claude-2", "ERROR a/conversations.json: ends too early"}},
		"one is empty": {map[string][]byte{"a/conversations.json": nil, "b/conversations.json": talk("2")}, []string{"SESSION claude-2", "ERROR a/conversations.json: is empty"}},
		"one is other": {map[string][]byte{"a.json": []byte(`{"a": 1}`), "b.json": talk("2")}, []string{"SESSION claude-2", "ERROR a.json"}},
		"an archive":   {map[string][]byte{"sessions.json": archived}, []string{"SESSION own"}},
	} {
		got := describe(t, bytes.NewReader(zipOf(t, c.files)))
		if strings.Contains(got, "END") || strings.Count(got, "SESSION")+strings.Count(got, "ERROR") != len(c.want) {
			t.Errorf("%s: %s", name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s; want %q", name, got, want)
			}
		}
	}
}

// A ZIP file may come through a pipe, as standard input does.
func TestZIPThroughPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		_, _ = w.Write(zipOf(t, map[string][]byte{"conversations.json": example(t, "claude.json")}))
		w.Close()
	}()
	if got := describe(t, r); !strings.Contains(got, "SESSION claude-aaaaaaaa") {
		t.Error(got)
	}
}

// Texts in which JavaScript has cut a character in half are read, and so is what follows values that are
// not conversations.
func TestFilesWithFaultyTexts(t *testing.T) {
	got := describe(t, strings.NewReader(`[null, {"a": 1}, {"uuid": "1", "chat_messages": [{"uuid": "2", "sender": "human", "text": "half \ud83d, other \udE00x, whole \ud83d\ude00, \\ud83d, end \ud83d"}]}, 7]`))
	for _, want := range []string{"ERROR [0], line 1", "ERROR [1], line 1", "ERROR [3], line 1", `"half \ufffd, other \ufffdx, whole 😀, \\ud83d, end \ufffd"`} {
		if !strings.Contains(got, strings.ReplaceAll(want, `\ufffd`, "\ufffd")) {
			t.Errorf("%s; want %q", got, want)
		}
	}
}

// manyFiles returns a ZIP file with more files than memory should hold. Its end says that there are few:
// readers of ZIP files read the list until it ends, because the number has only 16 bits.
func manyFiles() []byte {
	const local, files = 30, 250_000
	entry := append([]byte("PK\x01\x02"), make([]byte, 42)...)
	list := bytes.Repeat(entry, files)
	end := append([]byte("PK\x05\x06"), make([]byte, 18)...)
	binary.LittleEndian.PutUint16(end[8:], uint16(files%65536))
	binary.LittleEndian.PutUint16(end[10:], uint16(files%65536))
	binary.LittleEndian.PutUint32(end[12:], 46)
	binary.LittleEndian.PutUint32(end[16:], local)
	return slices.Concat([]byte("PK\x03\x04"), make([]byte, local-4), list, end)
}

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"chatgpt.json", "claude.json", "librechat.json", "open-webui.json"} {
		f.Add(example(f, name))
	}
	f.Add(zipOf(f, map[string][]byte{"conversations.json": []byte(`[]`)}))
	f.Fuzz(func(t *testing.T, b []byte) { describe(t, bytes.NewReader(b)) })
}
