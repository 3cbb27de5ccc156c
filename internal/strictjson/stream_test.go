package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"loquat/internal/strictjson"
)

// anyJSON returns a value of any form, with white space of any form in it.
func anyJSON(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", " ", "\n", "\t\r\n"}).Draw(t, "space")
	kinds := 6
	if depth > 3 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 1:
		return rapid.SampledFrom([]string{"0", "-1.5e7", "12"}).Draw(t, "number")
	case 2, 3:
		b, _ := json.Marshal(rapid.StringOf(rapid.SampledFrom([]rune("ab\"\\[]{},: \n漢"))).Draw(t, "text"))
		return string(b)
	case 4:
		var items []string
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			items = append(items, space+anyJSON(t, depth+1)+space)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var members []string
	for i := range rapid.IntRange(0, 3).Draw(t, "members") {
		members = append(members, space+`"`+string(rune('a'+i))+`\"{"`+space+":"+anyJSON(t, depth+1))
	}
	return "{" + strings.Join(members, ",") + space + "}"
}

// A Stream finds the same elements as a decoder of the whole text, wherever reads end, and can skip
// each of them.
func TestStreamFindsElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []string
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			items = append(items, anyJSON(t, 0))
		}
		text := " [" + strings.Join(items, " ,\n") + " ] "
		in, err := strictjson.NewStream(iotest.OneByteReader(strings.NewReader(text)))
		if err == nil {
			err = in.Open('[')
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range items {
			if more, err := in.More(); err != nil || !more {
				t.Fatalf("element %d: %v, %v", i, more, err)
			}
			if rapid.Bool().Draw(t, "skip") {
				if err := in.Skip(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			got, err := in.Value(1<<20, 128)
			if err != nil || string(got) != want {
				t.Fatalf("element %d is %s (%v), want %s", i, got, err, want)
			}
		}
		if more, err := in.More(); err != nil || more {
			t.Fatalf("after the last element: %v, %v", more, err)
		}
		if err := in.End(); err != nil {
			t.Fatal(err)
		}
	})
}

// Leave skips the rest of what is open, after any number of members.
func TestStreamLeaves(t *testing.T) {
	const text = `[{"a": [1, {"b": "}]"}, 3], "c": {}}, "next"]`
	for steps := range 4 {
		in, err := strictjson.NewStream(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		do := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		do(in.Open('['))
		_, err = in.More()
		do(err)
		do(in.Open('{'))
		if steps > 0 {
			_, _, err = in.Key()
			do(err)
		}
		if steps > 1 {
			do(in.Open('['))
		}
		if steps > 2 {
			_, err = in.More()
			do(err)
			do(in.Skip())
		}
		if steps == 1 {
			do(in.Skip())
		}
		do(in.Leave(1))
		more, err := in.More()
		do(err)
		got, err := in.Value(100, 1)
		do(err)
		if !more || string(got) != `"next"` {
			t.Errorf("%d steps: then %s", steps, got)
		}
	}
}

// A value of any size is skipped without being kept.
func TestStreamSkipsLargeValues(t *testing.T) {
	const size = 256 << 20
	large := io.MultiReader(strings.NewReader(`["`), io.LimitReader(letters{}, size), strings.NewReader(`", 7]`))
	in, err := strictjson.NewStream(large)
	if err == nil {
		err = in.Open('[')
	}
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := in.More(); err != nil {
		t.Fatal(err)
	}
	_, err = in.Value(1<<20, 1)
	if fault, ok := errors.AsType[*strictjson.ValueError](err); !ok || !strings.Contains(fault.Message, "larger than 1048576 bytes") {
		t.Errorf("the large value: %v", err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("skipping %d bytes took %d bytes of memory", size, took)
	}
	if _, err := in.More(); err != nil {
		t.Fatal(err)
	}
	if got, err := in.Value(10, 1); err != nil || string(got) != "7" {
		t.Errorf("then %s, %v", got, err)
	}
}

// letters is an endless text.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(`[{"a": 1}, "b", [1, 2], null]`))
	f.Add([]byte(`[}{]]"\`))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := strictjson.NewStream(bytes.NewReader(b))
		if err != nil || in.Open('[') != nil {
			return
		}
		var items []json.RawMessage
		for range len(b) + 1 {
			more, err := in.More()
			if err != nil {
				return
			}
			if !more {
				var want []json.RawMessage
				if in.End() == nil && json.Unmarshal(b, &want) == nil && len(want) != len(items) {
					t.Errorf("%d elements, want %d", len(items), len(want))
				}
				return
			}
			raw, err := in.Value(1<<20, 100)
			if _, ok := errors.AsType[*strictjson.ValueError](err); err != nil && !ok {
				return
			}
			items = append(items, raw)
		}
		t.Error("the elements have no end")
	})
}
