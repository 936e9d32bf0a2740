// Command bench runs the benchmarks that the project's budgets are about, and prints each figure beside its budget:
//
//	make bench
//
// The benchmarks themselves stand beside what they measure; this program starts them with "go test -bench", one package
// after the other so that they do not disturb each other, and reads their metrics.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"example.org/daisy/internal/report"
)

// A budget is one line of the table: a metric of a benchmark and what it has to reach.
type budget struct {
	what    string
	pkg     string // without the module's path
	name    string // of the benchmark, as go test prints it without the number of processors
	metric  string
	base    string  // if given, the figure is 100 × the metric of this benchmark / the metric of name
	atLeast float64 // 0 if atMost counts
	atMost  float64
	scale   float64 // the figure is shown divided by it
	unit    string
}

// spec runs the benchmarks of one package.
type spec struct {
	pkg, pattern, benchtime string
}

func main() {
	only := flag.String("only", "", "run only benchmarks whose package or name contains this")
	flag.Parse()
	ok, err := run(os.Stdout, os.Stderr, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(3)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(out, progress io.Writer, only string) (bool, error) {
	figures := map[string]float64{}
	for _, s := range specs {
		if only != "" && !strings.Contains(s.pkg+" "+s.pattern, only) {
			continue
		}
		fmt.Fprintf(progress, "benchmarks of %s: %s\n", s.pkg, s.pattern)
		if err := measure(s, figures); err != nil {
			return false, err
		}
	}
	all := true
	rows := [][]string{}
	for _, b := range budgets {
		got, there := figures[b.pkg+" "+b.name+" "+b.metric]
		if !there {
			if only == "" {
				return false, fmt.Errorf("%s: benchmark %s has no metric %s", b.pkg, b.name, b.metric)
			}
			continue
		}
		if b.base != "" {
			got = 100 * figures[b.pkg+" "+b.base+" "+b.metric] / got
		}
		verdict := "ok"
		if b.atLeast > 0 && got < b.atLeast || b.atMost > 0 && got > b.atMost {
			verdict, all = "short", false
		}
		bound := "≥ " + show(b.atLeast, b)
		if b.atMost > 0 {
			bound = "≤ " + show(b.atMost, b)
		}
		rows = append(rows, []string{b.what, bound, show(got, b), verdict})
	}
	title := fmt.Sprintf("%s, %d cores, %s", cpuName(), runtime.NumCPU(), runtime.Version())
	return all, report.Grid(out, title, []string{"<what", "budget", "reached", "<"}, rows)
}

func show(v float64, b budget) string {
	return strconv.FormatFloat(v/b.scale, 'g', 3, 64) + " " + b.unit
}

// line is a result of go test: name, rounds, then pairs of figure and unit.
var line = regexp.MustCompile(`^(Benchmark\S+?)(-\d+)?\s+\d+\s+(.*)$`)

// measure runs the benchmarks of a package and notes "package name metric".
func measure(s spec, figures map[string]float64) error {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", s.pattern, "-benchtime", s.benchtime, "-benchmem", "-timeout", "20m", "./"+s.pkg)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%v: %w\n%s%s", cmd.Args, err, text, errs.Bytes())
	}
	found := false
	for sc := bufio.NewScanner(bytes.NewReader(text)); sc.Scan(); {
		m := line.FindStringSubmatch(sc.Text())
		if m == nil {
			continue
		}
		found = true
		fields := strings.Fields(m[3])
		for i := 0; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %q is no figure", m[1], fields[i])
			}
			figures[s.pkg+" "+m[1]+" "+fields[i+1]] = v
		}
	}
	if !found {
		return fmt.Errorf("%s has no benchmark %s:\n%s", s.pkg, s.pattern, text)
	}
	return nil
}

// cpuName is what the system calls the processor.
func cpuName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for l := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}
