package jobfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// flatten lists the places of a document: path and line.
func flatten(n *node, path string, into map[string]int) {
	for k, c := range n.keys {
		into[path+k] = c.line
		flatten(c, path+k+".", into)
	}
	for i, c := range n.items {
		at := fmt.Sprintf("%s[%d]", strings.TrimSuffix(path, "."), i)
		into[at] = c.line
		flatten(c, at+".", into)
	}
}

func TestEveryKeyHasItsLine(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       map[string]int
	}{
		{"tables", "a = 1\n[t]\nb = 2\n\n[t.u]\nc = 3\n", map[string]int{"a": 1, "t": 2, "t.b": 3, "t.u": 5, "t.u.c": 6}},
		{"arrays of tables", "[[t]]\na = 1\n[t.u]\nb = 2\n[[t]]\na = 3\n[[t.v]]\nc = 4\n[[t.v]]\n",
			map[string]int{"t": 1, "t[0]": 1, "t[0].a": 2, "t[0].u": 3, "t[0].u.b": 4, "t[1]": 5, "t[1].a": 6, "t[1].v": 7, "t[1].v[0]": 7, "t[1].v[0].c": 8, "t[1].v[1]": 9}},
		{"dotted and quoted keys", "a . 'b.c' . \"d\\u0065\" = 1\na.f = 2\n", map[string]int{"a": 1, "a.b.c": 1, "a.b.c.de": 1, "a.f": 2}},
		{"inline tables and lists over lines", "a = { b = 1, c = [\n  1, # x, y ]\n  { d = 2 },\n  [3],\n] }\n",
			map[string]int{"a": 1, "a.b": 1, "a.c": 1, "a.c[0]": 2, "a.c[1]": 3, "a.c[1].d": 3, "a.c[2]": 4, "a.c[2][0]": 4}},
		{"strings that look like TOML", "a = \"\"\"\n[x]\nb = 1 \\\"\"\"\\\"\"\"\"\nc = '''\n\"\n'''\nd = '\\'\ne = \"\\\"#\" # f = 1\n",
			map[string]int{"a": 1, "c": 4, "d": 7, "e": 8}},
		{"carriage returns and a byte order mark", "\ufeffa = 1\r\n[b]\r\nc = 1979-05-27 07:32:00\r\nd = 2", map[string]int{"a": 1, "b": 2, "b.c": 3, "b.d": 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var doc map[string]any
			if _, err := toml.Decode(test.text, &doc); err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			root, _ := positions(test.text)
			flatten(root, "", got)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// missing names a value of the document that has no place.
func missing(v any, n *node, path string) string {
	if n == nil {
		return path
	}
	if m, ok := v.(map[string]any); ok {
		for k, below := range m {
			if at := missing(below, n.key(k), path+"/"+k); at != "" {
				return at
			}
		}
	}
	if list, ok := items(v); ok {
		for i, below := range list {
			if at := missing(below, n.item(i), fmt.Sprintf("%s/%d", path, i)); at != "" {
				return at
			}
		}
	}
	return ""
}

// jobs are the job files of the scenarios.
func jobs(f *testing.F) []string {
	paths, err := filepath.Glob("testdata/load/*")
	if err != nil || len(paths) == 0 {
		f.Fatal(paths, err)
	}
	var all []string
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "\nload\n") {
			text, _, _ := strings.Cut(part, "\n----\n")
			all = append(all, text)
		}
	}
	return all
}

func FuzzPositions(f *testing.F) {
	for _, text := range jobs(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root, deepAt := positions(text)
		if deepAt > 0 {
			return
		}
		var doc map[string]any
		if _, err := toml.Decode(text, &doc); err != nil {
			return
		}
		if at := missing(doc, root, ""); at != "" {
			t.Errorf("%s has no place", at)
		}
	})
}

func FuzzLoad(f *testing.F) {
	for _, text := range jobs(f) {
		f.Add(text, "task.a.timeout=10")
	}
	f.Add("[[task]]\nid = \"a\"", "run.resources={cpu=1}")
	f.Fuzz(func(t *testing.T, text, set string) {
		file := filepath.Join(t.TempDir(), "job.toml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := Load(file, []string{set}, Options{})
		if err == nil {
			if _, err := j.Pipeline(); err != nil {
				t.Errorf("accepted, but there is no pipeline: %v", err)
			}
			return
		}
		if _, ok := err.(*Errors); !ok || err.Error() == "" {
			t.Errorf("%T: %v", err, err)
		}
	})
}
