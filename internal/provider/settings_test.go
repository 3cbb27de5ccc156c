package provider

import "testing"

func TestCheckOfNames(t *testing.T) {
	for raw, ok := range map[string]bool{
		`"https://x.example/v1"`:                   true,
		`"https://x.example/v1/chat/completions"`:  false,
		`"https://x.example/v1/chat/completions/"`: false,
		`"ftp://x.example"`:                        false,
	} {
		if err := checkBaseURL([]byte(raw)); (err == nil) != ok {
			t.Errorf("base_url %s: %v", raw, err)
		}
	}
	if checkModel([]byte(`""`)) == nil || checkModel([]byte(`"m"`)) != nil {
		t.Error("a model has to have a name")
	}
}
