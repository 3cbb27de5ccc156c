package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the bill of materials: all Go modules and npm packages in the program.
func (r *release) writeSBOM() error {
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(r.bom()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "loquat_"+r.version+"_sbom.cdx.json"), out.Bytes(), 0o644)
}

// bom returns the bill of materials. It has no serial number, because each build would give it another.
func (r *release) bom() *cyclonedx.BOM {
	program := component("loquat", r.version, "pkg:generic/loquat@"+r.version, "Apache-2.0")
	program.Type = cyclonedx.ComponentTypeApplication
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &program}
	var components []cyclonedx.Component
	var urls []string
	for _, p := range r.parts {
		components = append(components, component(p.name, p.version, p.url, p.licence))
		urls = append(urls, p.url)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: program.BOMRef, Dependencies: &urls}}
	return bom
}

func component(name, version, url, licence string) cyclonedx.Component {
	c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: name, Version: version, PackageURL: url}
	switch {
	case strings.Contains(licence, " "):
		c.Licenses = &cyclonedx.Licenses{{Expression: licence}}
	case licence != "":
		c.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: licence}}}
	}
	return c
}
