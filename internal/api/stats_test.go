package api

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fields lists the fields of a type as docs/stats.md has them: "path | type".
func fields(t reflect.Type, path string) []string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return []string{path + " | time"}
	case t == reflect.TypeFor[[][2]float64]():
		return []string{path + " | list of [number, integer]"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return []string{fields(t.Elem(), path)[0] + " or null"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return fields(t.Elem(), path+"[]")
		}
		return []string{path + " | list of " + typeName(t.Elem())}
	case reflect.Map:
		return []string{path + " | map of string to " + typeName(t.Elem())}
	case reflect.Struct:
		var all []string
		for i := range t.NumField() {
			name := t.Field(i).Tag.Get("json")
			if path != "" {
				name = path + "." + name
			}
			all = append(all, fields(t.Field(i).Type, name)...)
		}
		return all
	}
	return []string{path + " | " + typeName(t)}
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Float64:
		return "number"
	case reflect.Bool:
		return "boolean"
	default:
		return "integer"
	}
}

func TestTheDocumentationHasEveryFieldOfStatsJSON(t *testing.T) {
	doc, err := os.ReadFile("../../docs/stats.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| ([^|]+) \\|([^|]*)\\| (.+) \\|$")
	_, section, _ := strings.Cut(string(doc), "## stats.json")
	var got []string
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		got = append(got, m[1]+" | "+strings.TrimSpace(m[2]))
		name := m[1][strings.LastIndexAny(m[1], ".]")+1:]
		for suffix, unit := range map[string]string{"_seconds": "seconds", "_bytes": "bytes"} {
			if strings.HasSuffix(name, suffix) && strings.TrimSpace(m[3]) != unit {
				t.Errorf("%s has the unit %q, want %s", m[1], m[3], unit)
			}
		}
	}
	if diff := cmp.Diff(fields(reflect.TypeFor[Stats](), ""), got); diff != "" {
		t.Errorf("-type +docs/stats.md:\n%s", diff)
	}
	if !strings.Contains(section, "Version 1.") || StatsVersion != 1 {
		t.Error("the version of the documentation is not that of the type")
	}
}
