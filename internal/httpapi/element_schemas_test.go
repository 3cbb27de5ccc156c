package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"loquat/internal/httpapi/route"
	"loquat/internal/ui"
)

// Whoever adds an attribute reads which schema is missing, and where.
func TestAttributeWithoutSchema(t *testing.T) {
	known := ui.Attributes["model_picker"]
	defer func() { ui.Attributes["model_picker"] = known }()
	ui.Attributes["model_picker"] = append([]string{"shape"}, known...)
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, `"shape"`) || !strings.Contains(text, "elementFields in internal/httpapi/element_schemas.go") {
			t.Errorf("it fails with: %s", text)
		}
	}()
	addElements(route.NewSchemas())
}
