package rundir

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheDocumentationHasEveryFileOfARunDirectory(t *testing.T) {
	worker := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(worker, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	d := mustCreate(t, t.TempDir(), "segment", "")
	list := func() (names []string) {
		entries, err := os.ReadDir(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := e.Name()
			if e.IsDir() {
				name += "/"
			}
			names = append(names, name)
		}
		return names
	}
	names := list()
	l, err := d.TryLock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.NextEpoch(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.CopyWorker(worker); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Certificate(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		d.CopyMask("a", worker), d.MakeScripts(), d.WriteJob(nil), d.WriteDiscovery(Discovery{}), d.WritePort(1), d.WriteStats(nil), l.Unlock(),
		d.WriteCoordinatorJob(CoordinatorJob{Job: "7"}), os.WriteFile(d.CoordinatorLog(), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	names = append(names, list()...)
	slices.Sort(names)
	names = slices.Compact(names)

	doc, err := os.ReadFile("../../docs/stats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "## The run directory")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	slices.Sort(documented)
	if diff := cmp.Diff(names, documented); diff != "" {
		t.Errorf("-files +docs/stats.md:\n%s", diff)
	}
}
