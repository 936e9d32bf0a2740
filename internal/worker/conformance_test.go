package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// conform tests a program, and gives what was said of each rule that it breaks, by the number of the rule from 1.
func conform(t *testing.T, patience time.Duration, block string, argv ...string) (broken map[int]string, out string) {
	t.Helper()
	var text bytes.Buffer
	c := Conformance{Argv: argv, Patience: patience, Out: &text}
	if block != "" {
		c.Block = json.RawMessage(block)
	}
	passed, failed, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	broken = map[int]string{}
	rule := 0
	for line := range strings.Lines(text.String()) {
		switch {
		case strings.HasPrefix(line, "pass  "):
			rule++
		case strings.HasPrefix(line, "FAIL  "):
			rule++
			broken[rule] = ""
		case broken[rule] == "":
			broken[rule] = strings.TrimSpace(line)
		}
	}
	if rule != len(conformanceRules) || passed+failed != rule || failed != len(broken) {
		t.Errorf("%d passed, %d failed, %d rules:\n%s", passed, failed, len(conformanceRules), text.String())
	}
	return broken, text.String()
}

// loop is a stream program in shell, which does body for each block: $line, $lease, and say for an answer.
func loop(body string) []string {
	return script1(`say() { printf '%%s\n' "$1" >&"$DAISY_ANSWER_FD"; }
while IFS= read -r line; do lease=${line##*'"lease":"'}; lease=${lease%%%%'"'*}
%s
done`, body)
}

const ok = `say "{\"lease\":\"$lease\",\"ok\":true}"`

func TestProgramsThatKeepTheProtocolPass(t *testing.T) {
	text := "import sys\nsys.path.insert(0, sys.argv[1])\nimport daisy_worker\n"
	module, err := filepath.Abs(filepath.Join("..", "..", "sdk", "python"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		body string // in Python; "" = argv
		argv []string
	}{
		"in shell":                       {"", loop(ok)},
		"in shell, always failing":       {"", loop(`say "{\"lease\":\"$lease\",\"ok\":false,\"error\":\"no\"}"`)},
		"that ends after each answer":    {"", loop(ok + "; exit 0")},
		"that answers without a newline": {"", loop(`printf '{"lease":"%s","ok":true}' "$lease" >&3; exit 0`)},
		"with the module":                {"for block in daisy_worker.blocks(): print(block.read, block.write)", nil},
		"with the module, careful":       {"for block in daisy_worker.blocks():\n  with block: print(block.read.slices, block.write.slices)", nil},
		"with the module, failing":       {"for block in daisy_worker.blocks():\n  with block: raise ValueError('ä' + chr(0xdfff))", nil},
		"with a function":                {"def f(block): assert block.index[0] < 2**38\ndaisy_worker.run(f)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			argv, program := tc.argv, filepath.Join(t.TempDir(), "program.py")
			if tc.body != "" {
				argv = []string{python3(t), program, module}
				if err := os.WriteFile(program, []byte(text+tc.body+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if broken, out := conform(t, soon, "", argv...); len(broken) > 0 {
				t.Error(out)
			}
		})
	}
}

func TestWhatAProgramDoesAgainstTheProtocolIsNamed(t *testing.T) {
	const expected = `; expected {"lease":"3.812","ok":true} or {"lease":"3.812","ok":false,"error":"…"} on descriptor DAISY_ANSWER_FD`
	for name, tc := range map[string]struct {
		argv     []string
		patience time.Duration // short where a program is waited for in vain
		rule     int           // the first that is broken
		want     string
		count    int // how many are broken
	}{
		"answers on standard output":   {loop(`echo "{\"lease\":\"$lease\",\"ok\":true}"`), 300 * time.Millisecond, 1, "no answer within 300ms" + expected, 10},
		"does not answer":              {loop("exit 3"), soon, 1, "it ended without an answer: exit status 3" + expected, 10},
		"closes the answers":           {loop("exec 3>&-"), 300 * time.Millisecond, 1, "it closed descriptor DAISY_ANSWER_FD without answering", 10},
		"answers what is no JSON":      {loop("say done"), soon, 1, `its answer is no JSON object in one line: "done\n"` + expected, 10},
		"answers without a lease":      {loop(`say '{"ok":true}'`), soon, 1, `its answer has no lease: "{\"ok\":true}\n"` + expected, 10},
		"answers with a number":        {loop(`say "{\"lease\":$lease,\"ok\":true}"`), soon, 1, `the lease of its answer is not a string: "{\"lease\":3.812,\"ok\":true}\n"` + expected, 10},
		"answers with another lease":   {loop(`say '{"lease":"1.1","ok":true}'`), soon, 1, `it answered with the lease "1.1": that of the block comes back as it is` + expected, 10},
		"answers with a word":          {loop(`say "{\"lease\":\"$lease\",\"ok\":\"yes\"}"`), soon, 1, `"ok" of its answer is neither true nor false: "{\"lease\":\"3.812\",\"ok\":\"yes\"}\n"` + expected, 10},
		"fails without a reason":       {loop(`say "{\"lease\":\"$lease\",\"ok\":false}"`), soon, 1, `its answer says that the block failed, and not why ("error"): "{\"lease\":\"3.812\",\"ok\":false}\n"` + expected, 10},
		"answers twice":                {loop(ok + ";" + ok), soon, 1, `it answered without a block, or twice: "{\"lease\":\"3.812\",\"ok\":true}\n"`, 10},
		"does not end with its input":  {script1(`%s; sleep 1000`, loop(ok)[2]), 300 * time.Millisecond, 1, "its standard input ended, and it did not end within 300ms", 11},
		"ends badly":                   {script1("%s; exit 4", loop(ok)[2]), soon, 1, "its standard input ended, and it ended with exit status 4; expected exit status 0", 11},
		"ends at what it cannot do":    {loop(`case $line in *another*) exit 1;; esac; ` + ok), soon, 4, "", 1},
		"cannot do an offset below 0":  {loop(`case $line in *-8*) exit 1;; esac; ` + ok), soon, 5, "", 1},
		"loses digits":                 {loop(`say "{\"lease\":\"$(printf '%.1f' "$lease")\",\"ok\":true}"`), soon, 1, "", 10},
		"cannot do without an id":      {loop(`case $line in *null,*) exit 1;; esac; ` + ok), soon, 7, "", 2},
		"does not let fields be":       {loop(`case $line in *future*) exit 1;; esac; ` + ok), soon, 8, "", 1},
		"takes a piece for a line":     {[]string{"sh", "-c", `dd bs=4096 count=1 2>/dev/null >/dev/null; echo '{"lease":"3.820","ok":true}' >&3; cat > /dev/null`}, soon, 9, "", 0},
		"speaks before it is asked":    {script1(`echo hello >&3; %s`, loop(ok)[2]), soon, 11, `it answered without a block, or twice: "hello\n"`, 0},
		"does a block that is no more": {loop(`sleep 0.1; IFS= read -r -t 1 more || exit 0; ` + ok), soon, 10, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken, out := conform(t, tc.patience, "", tc.argv...)
			got, isBroken := broken[tc.rule]
			if !isBroken || tc.want != "" && got != tc.want || tc.count > 0 && len(broken) != tc.count {
				t.Errorf("rule %d: got\n%s\nwant\n%s; %d broken, want %d\n%s", tc.rule, got, tc.want, len(broken), tc.count, out)
			}
		})
	}
}

func TestAProgramCanBeTestedWithABlockOfItsOwn(t *testing.T) {
	const block = `{"task":"t","block":9007199254740993,"index":[4],"read":{"offset":[40],"shape":[12]},"write":{"offset":[41],"shape":[10]},"attempt":1}`
	seen := filepath.Join(t.TempDir(), "seen")
	argv := loop(fmt.Sprintf(`printf '%%s\n' "$line" >> %s; `, seen) + ok)
	if broken, out := conform(t, soon, block, argv...); len(broken) > 0 {
		t.Error(out)
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if want := `{"attempt":1,"block":9007199254740993,"index":[4],"lease":"3.812","read":{"offset":[40],"shape":[12]},"task":"t","write":{"offset":[41],"shape":[10]}}`; first != want {
		t.Errorf("got\n%s\nwant\n%s", first, want)
	}
	for _, wrong := range []string{`[]`, `{"task":"t"}`} {
		if _, _, err := (Conformance{Argv: argv, Block: json.RawMessage(wrong), Patience: soon, Out: &bytes.Buffer{}}).Run(t.Context()); err == nil {
			t.Errorf("%s is taken for a block", wrong)
		}
	}
}

func TestAConformanceTestLeavesNothingRunning(t *testing.T) {
	f := newFifo(t)
	broken, _ := conform(t, 300*time.Millisecond, "", script1(`setsid sleep 1000 & echo $! > %s; wait`, f.path)...)
	if len(broken) != len(conformanceRules) {
		t.Errorf("broken: %v", broken)
	}
	for range conformanceRules {
		if child := f.readPID(); alive(child) {
			t.Errorf("process %d is left behind", child)
		}
	}
}
