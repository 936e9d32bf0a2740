// Package arch keeps the direction of imports: which package may import which is a table here, drawn in
// docs/architecture.md, and a wrong import fails the tests.
package arch

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "example.org/daisy"

// row is what one package may import besides the standard library.
type row struct {
	imports []string // packages of this module, without the module's path
	modules []string // other modules, by a prefix of the import path
	// anything: a program may import any package of the module.
	anything bool
}

// table has a row for every package; "" is the root package. Test files are exempt.
var table = map[string]row{
	"geom":      {},
	"scheduler": {imports: []string{"geom"}},

	"launcher":              {},
	"launcher/launchertest": {imports: []string{"launcher"}, modules: []string{"github.com/google/go-cmp"}},
	"launcher/local":        {imports: []string{"launcher", "internal/process", "internal/units"}},
	"launcher/inprocess":    {imports: []string{"launcher"}},
	"launcher/slurm":        {imports: []string{"launcher", "templates", "internal/process", "internal/units"}, modules: []string{"mvdan.cc/sh/v3"}},
	"templates":             {modules: []string{"mvdan.cc/sh/v3"}},

	"": {imports: []string{"geom", "scheduler", "launcher", "launcher/local", "launcher/inprocess",
		"internal/job", "internal/engine", "internal/coordinator", "internal/worker", "internal/wire", "internal/api", "internal/process",
		"internal/rundir", "internal/units", "internal/version"}},

	"internal/units":    {},
	"internal/testenv":  {},
	"internal/slurmlab": {imports: []string{"internal/testenv"}},
	"internal/version":  {},
	"internal/job":      {imports: []string{"geom", "scheduler", "internal/units"}},
	"internal/jobfile":  {imports: []string{"geom", "scheduler", "internal/job", "internal/array", "internal/units"}, modules: []string{"github.com/BurntSushi/toml"}},
	"internal/array":    {imports: []string{"geom"}},
	"internal/fleet":    {imports: []string{"scheduler", "launcher"}},
	"internal/engine":   {imports: []string{"geom", "scheduler", "internal/fleet", "launcher", "internal/job", "internal/units"}},
	"internal/journal":  {},
	"internal/tracking": {imports: []string{"geom"}},
	"internal/rundir":   {imports: []string{"internal/units"}},
	"internal/wire":     {imports: []string{"geom"}},
	"internal/api":      {imports: []string{"geom"}, modules: []string{"github.com/hashicorp/go-retryablehttp"}},
	"internal/process":  {modules: []string{"github.com/prometheus/procfs", "golang.org/x/sys"}},
	"internal/worker": {imports: []string{"internal/wire", "internal/daisywire", "internal/api", "internal/rundir", "internal/process", "geom", "internal/units"},
		modules: []string{"github.com/hashicorp/go-retryablehttp"}},
	"internal/stats":  {imports: []string{"geom", "scheduler", "launcher", "internal/api", "internal/units"}, modules: []string{"github.com/HdrHistogram/hdrhistogram-go"}},
	"internal/report": {imports: []string{"internal/stats", "internal/api", "internal/units"}, modules: []string{"github.com/olekukonko/tablewriter", "github.com/vbauerster/mpb/v8", "golang.org/x/term"}},
	"internal/coordinator": {imports: []string{"internal/engine", "geom", "scheduler", "internal/job", "launcher", "internal/journal", "internal/tracking",
		"internal/rundir", "internal/wire", "internal/daisywire", "internal/api", "internal/stats", "internal/process", "internal/units"}},

	"internal/daisywire": {imports: []string{"geom"}},

	"internal/sim": {imports: []string{"internal/engine", "geom", "scheduler", "internal/job", "launcher", "internal/journal", "internal/tracking"}},

	"cmd/daisy-submit": {anything: true, modules: []string{"github.com/urfave/cli/v2", "golang.org/x/term"}},
	"cmd/daisy-worker": {anything: true, modules: []string{"github.com/urfave/cli/v2"}},
	"internal/bench":   {anything: true},

	"examples/nuclei":  {imports: []string{"geom"}},
	"examples/library": {imports: []string{"", "geom"}},
}

// pure are the packages without I/O, goroutines, clock and logging: what of the standard library they must not import.
var pure = []string{"geom", "scheduler", "internal/fleet", "internal/engine"}

var impure = []string{"os", "io/fs", "net", "log", "sync", "syscall", "os/exec", "net/http", "log/slog", "math/rand", "math/rand/v2", "context"}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	dec := json.NewDecoder(bytes.NewReader(out))
	for dec.More() {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		r, known := table[name]
		if !known {
			if len(p.Imports) > 0 {
				t.Errorf("package %q has no row in the table of internal/arch", name)
			}
			continue
		}
		for _, imp := range p.Imports {
			switch {
			case imp == module || strings.HasPrefix(imp, module+"/"):
				own := strings.TrimPrefix(strings.TrimPrefix(imp, module), "/")
				if !r.anything && !slices.Contains(r.imports, own) {
					t.Errorf("%q imports %q, which its row does not allow", name, own)
				}
			case strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
				if !slices.ContainsFunc(r.modules, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") }) {
					t.Errorf("%q imports %q, a module that its row does not allow", name, imp)
				}
			}
		}
	}
}

func TestPurePackagesHaveNoWayOut(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if !slices.Contains(pure, name) {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(impure, imp) {
				t.Errorf("%q is pure and imports %q", name, imp)
			}
		}
	}
}
