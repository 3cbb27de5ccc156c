package config

import (
	"loquat"
	"loquat/internal/strictjson"
)

// ParseObject parses one JSON object strictly.
func ParseObject(data []byte) (loquat.Object, *Problem) {
	o, err := strictjson.Object(data)
	if err != nil {
		return nil, &Problem{Path: err.Position(), Message: err.Text()}
	}
	return o, nil
}
