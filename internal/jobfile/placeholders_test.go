package jobfile

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the worker replaces is in the documentation, which its own tests compare with it.
func TestThePlaceholdersAreThoseOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/programs.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("`\\{([a-z_]+)\\}`").FindAllSubmatch(page, -1) {
		documented = append(documented, string(m[1]))
	}
	slices.Sort(documented)
	known := slices.Sorted(slices.Values(placeholders))
	if d := cmp.Diff(slices.Compact(documented), known); d != "" {
		t.Errorf("-docs/programs.md +code\n%s", d)
	}
}
