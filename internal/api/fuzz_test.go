package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"example.org/daisy/internal/api"
	"example.org/daisy/internal/report"
)

// What a worker says of itself comes from another machine, or from a program of somebody else's.
func FuzzAJoinRequestIsReadOrRefused(f *testing.F) {
	whole, err := json.Marshal(api.JoinRequest{
		Protocol: 1, Version: "v0.1.0", Tag: "3", Element: 7, Nonce: 1<<64 - 1, Slots: 2, Node: "n1", PID: 12, PIDSpace: "pid:[4026531836]",
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"protocol":1,"name":"mine","task":"predict","nonce":1,"slots":1}`))
	f.Add([]byte(`{"protocol":1,"nonce":18446744073709551616}`))
	f.Add([]byte(`{"slots":-1,"name":"\u0000\ud800","element":-9223372036854775808}`))
	f.Add([]byte(`{"protocol":"1"}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`null`))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, body []byte) { again[api.JoinRequest](t, body) })
}

// stats.json may come from an earlier version, another program or a damaged disk.
func FuzzStatisticsOfAnyBytesArePrintedOrRefused(f *testing.F) {
	for _, path := range []string{"../report/testdata/failed.json", "../report/testdata/empty.json"} {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"tasks":[{}],"workers":[{}],"nodes":[{}],"run":{"segments":[{}],"resources":[{}],"exit_status":-1}}`))
	f.Add([]byte(`{"version":1,"tasks":[{"id":"a\u001b[31m\nb","blocks":-9223372036854775808,"failures":[{"message":"\r\u0007"}]}]}`))
	f.Add([]byte(`{"version":1,"tasks":[{"id":"a","block_seconds":{"mean":1e308,"max":-1e308},"cpu_busy":1e308,"wall_seconds":1e-308}]}`))
	f.Add([]byte(`{"version":1,"run":{"started":"9999-12-31T23:59:59Z","ended":"0001-01-01T00:00:00Z","wall_seconds":-1}}`))
	f.Add([]byte(`{"tasks":{}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, ok := again[api.Stats](t, data)
		if !ok {
			return
		}
		for _, format := range []report.Format{report.Table, report.Markdown} {
			var out bytes.Buffer
			if err := report.Tables(&out, s, format); err != nil {
				t.Errorf("%s: %v", format, err)
			}
			if i := bytes.IndexFunc(out.Bytes(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
				t.Errorf("%s has a code for terminals: %q", format, out.Bytes()[i:])
			}
		}
		if err := report.Tables(io.Discard, s, report.CSV); err != nil {
			t.Errorf("csv: %v", err)
		}
	})
}

// again reads JSON, and checks that what was read is the same when it is written and read once more.
func again[T any](t *testing.T, data []byte) (first T, ok bool) {
	t.Helper()
	if json.Unmarshal(data, &first) != nil {
		return first, false
	}
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatalf("%+v cannot be written: %v", first, err)
	}
	var second T
	if err := json.Unmarshal(text, &second); err != nil {
		t.Fatalf("%s cannot be read again: %v", text, err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("written and read again (-first +second):\n%s", diff)
	}
	return first, true
}
