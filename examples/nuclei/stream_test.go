package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The test binary started with this variable is the program itself.
const asProgram = "NUCLEI_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const goodBlock = `{"task":"smooth","block":0,"index":[0,0,0],"read":{"offset":[-7,-7,-7],"shape":[46,46,46]},` +
	`"write":{"offset":[0,0,0],"shape":[32,32,32]},"attempt":1,"lease":"3.812"}`

func TestEachLineIsAnsweredInOrderAndNoneEndsTheWorker(t *testing.T) {
	in := strings.Join([]string{
		goodBlock,
		`{"lease":"3.813","index":[0,0,1],"write":{"offset":[0,0,32],"shape":[32,32,32]}}`,
		`{"lease":"3.814","index":[0,0]}`,
		`{"lease":"3.815","index":`,
		`[]`,
		``,
		`{"index":[0,0,0]}`,
		`{"lease":"3.816","index":[0,0,2]}`,
	}, "\n")
	do := func(b block) error {
		if b.Index == (point{0, 0, 1}) {
			return errors.New("disk full")
		}
		return nil
	}
	var answers, log bytes.Buffer
	if err := serve(strings.NewReader(in), &answers, &log, "smooth", do); err != nil {
		t.Fatal(err)
	}
	want := `{"lease":"3.812","ok":true}
{"lease":"3.813","ok":false,"error":"disk full"}
{"lease":"3.814","ok":false,"error":"stdin: not a block: [0,0] has 2 numbers, want 3 (z, y, x)"}
{"lease":"","ok":false,"error":"stdin: not a block: unexpected end of JSON input"}
{"lease":"","ok":false,"error":"stdin: not a block: json: cannot unmarshal array into Go value of type main.block"}
{"lease":"","ok":false,"error":"stdin: not a block: no lease"}
{"lease":"3.816","ok":true}
`
	if got := answers.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if !strings.Contains(log.String(), "smooth: block [0 0 1], attempt 0: disk full\n") {
		t.Errorf("the log does not have the failure:\n%s", log.String())
	}
}

func TestALineWithoutEndIsRefused(t *testing.T) {
	in := strings.NewReader(`{"lease":"` + strings.Repeat("x", 2*maxLine))
	err := serve(in, io.Discard, io.Discard, "smooth", func(block) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "token too long") {
		t.Errorf("got %v", err)
	}
}

func TestAWorkerThatCannotAnswerEnds(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	err = serve(strings.NewReader(goodBlock), write, io.Discard, "smooth", func(block) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "cannot answer") {
		t.Errorf("got %v", err)
	}
}

func TestTheProgramAnswersOnDescriptor3AndEndsWithItsInput(t *testing.T) {
	p := newProject(t)
	if err := prepare(p, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command(os.Args[0], "smooth")
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), asProgram+"=1", "DAISY_ANSWER_FD=3")
	cmd.ExtraFiles = []*os.File{write}
	cmd.Stdin = strings.NewReader(goodBlock + "\n" + strings.Replace(goodBlock, "-7,-7,-7", "0,0,0", 1) + "\n" +
		strings.Replace(goodBlock, `"shape":[46,46,46]`, `"shape":[39,39,38]`, 1) + "\n")
	output, err := cmd.CombinedOutput()
	write.Close()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	answers, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	// The second reads from the border of the volume, which is enough there; the third one voxel too few.
	want := `{"lease":"3.812","ok":true}
{"lease":"3.812","ok":true}
{"lease":"3.812","ok":false,"error":"smooth needs [0:39, 0:39, 0:39] to write [0:32, 0:32, 0:32] but may read only [-7:32, -7:32, -7:31]: the task's context must be at least 7"}
`
	if got := string(answers); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTheExitStatusTellsWrongUsageFromFailure(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		says   string
	}{
		{"help", 0, "nuclei prepare"},
		{"", 2, "no command given"},
		{"smoth", 2, `unknown command "smoth"`},
		{"verify --fresh", 2, "flag provided but not defined: -fresh"},
		{"prepare here", 2, `prepare takes no argument "here"`},
		{"smooth", 1, "smooth: DAISY_ANSWER_FD is not set"},
		{"prepare --dir testdata/nowhere", 1, "no job file testdata/nowhere/nuclei.toml: give the folder of nuclei.toml with --dir"},
		{"verify --dir testdata/nowhere", 1, "no job file testdata/nowhere/nuclei.toml"},
	} {
		cmd := exec.Command(os.Args[0], strings.Fields(test.args)...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "DAISY_ANSWER_FD=")
		output, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != test.status || !strings.Contains(string(output), test.says) {
			t.Errorf("nuclei %s: status %d, output\n%s\nwant status %d and %q", test.args, got, output, test.status, test.says)
		}
	}
}

func TestAWrongAnswerDescriptorIsRefused(t *testing.T) {
	for value, want := range map[string]string{
		"three":  `DAISY_ANSWER_FD="three" is not the number of a descriptor`,
		"-1":     `DAISY_ANSWER_FD="-1" is not the number of a descriptor`,
		"123456": "DAISY_ANSWER_FD=123456 is not an open descriptor",
	} {
		if _, err := answerFile(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", value, err, want)
		}
	}
}

func TestABlockThatIsNotOneChunkIsRefused(t *testing.T) {
	p := newProject(t)
	if err := prepare(p, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	good := gridBlocks(point{60, 256, 256}, point{32, 32, 32}, gaussContext)[64]
	half, outside, unclipped := good, good, good
	half.Write.Shape = point{28, 32, 16}
	outside.Index = point{2, 0, 0}
	unclipped.Write.Shape = point{32, 32, 32}
	for want, b := range map[string]block{
		"block [1 0 0] writes [32:60, 0:32, 0:16] but the chunk there is [32:60, 0:32, 0:32]": half,
		"block index [2 0 0] is outside the grid":                                             outside,
		"block [1 0 0] writes [32:64, 0:32, 0:32] but the chunk there is [32:60, 0:32, 0:32]": unclipped,
	} {
		for _, name := range []string{"smooth", "label", "relabel"} {
			if err := p.steps()[name](b); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", name, err, want)
			}
		}
	}
	if err := p.stitch(good); err == nil || !strings.Contains(err.Error(), "stitch takes one block over the whole volume [0:60, 0:256, 0:256]") {
		t.Errorf("stitch: got %v", err)
	}
}

func TestAStepWithoutItsInputSaysWhatHasNotRun(t *testing.T) {
	p := newProject(t)
	chunk := gridBlocks(point{60, 256, 256}, point{32, 32, 32}, gaussContext)[0]
	whole := gridBlocks(point{60, 256, 256}, point{60, 256, 256}, 0)[0]
	if err := p.smooth(chunk); err == nil || !strings.Contains(err.Error(), "run `nuclei prepare` first") {
		t.Errorf("smooth: got %v", err)
	}
	if err := prepare(p, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := p.label(chunk); err == nil || !strings.Contains(err.Error(), "is missing: the block that writes it has not run") {
		t.Errorf("label: got %v", err)
	}
	if err := p.stitch(whole); err == nil || !strings.Contains(err.Error(), "the ids of a block that label has not done") {
		t.Errorf("stitch: got %v", err)
	}
	if err := p.relabel(chunk); err == nil || !strings.Contains(err.Error(), "the table of stitch") {
		t.Errorf("relabel: got %v", err)
	}
}

func FuzzDecodeBlock(f *testing.F) {
	f.Add([]byte(goodBlock))
	f.Add([]byte(`{"lease":"1.1","index":null,"read":[],"write":{"shape":[9223372036854775807,-1,0]}}`))
	f.Add([]byte(`{"lease":7}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		b, err := decodeBlock(line)
		if err == nil && b.Lease == "" {
			t.Error("a block without a lease is accepted")
		}
		if b.check(box{Shape: point{60, 256, 256}}, point{32, 32, 32}) == nil && !(box{Shape: point{60, 256, 256}}).contains(b.Write) {
			t.Errorf("check accepts the write region %v", b.Write)
		}
		b.Read.contains(b.Write) // must not panic, whatever the numbers
	})
}
