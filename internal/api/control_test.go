package api

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheDocumentationHasEveryFieldOfTheControlInterface(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| ([^|]+) \\| .+ \\|$")
	for title, of := range map[string]reflect.Type{
		"### `live`: the answer of `" + PathState + "`":                               reflect.TypeFor[State](),
		"### `workers --json`: the answer of `" + PathWorkers + "`":                   reflect.TypeFor[WorkerPage](),
		"### `blocks --json`: the answer of `" + PathBlocks + "`":                     reflect.TypeFor[BlockPage](),
		"### `set`, `stop`, `exclude`, `include`, `drain` and `cancel` with `--json`": reflect.TypeFor[Done](),
		"### `events --json`: the data of `" + PathEvents + "`":                       reflect.TypeFor[Event](),
	} {
		_, section, _ := strings.Cut(string(doc), title+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		var got []string
		for _, m := range row.FindAllStringSubmatch(section, -1) {
			got = append(got, m[1]+" | "+strings.TrimSpace(m[2]))
		}
		if diff := cmp.Diff(fields(of, ""), got); diff != "" {
			t.Errorf("%s\n-type +docs/cli.md:\n%s", title, diff)
		}
		if !strings.HasPrefix(strings.TrimSpace(section), "Version 1.") || ControlVersion != 1 {
			t.Errorf("%s: the version of the documentation is not that of the type", title)
		}
	}
}

// coordinatorThat answers every request of a run in a way of its own, and gives a client of that run.
func coordinatorThat(t *testing.T, answer func(k Key, w http.ResponseWriter, r *http.Request)) *Client {
	t.Helper()
	k := Key{Run: "r7", Secret: strings.Repeat("s", 64)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(k, w, r) }))
	t.Cleanup(s.Close)
	return &Client{Key: k, Addresses: []string{strings.TrimPrefix(s.URL, "http://")}}
}

// prove answers as a coordinator does.
func prove(k Key, w http.ResponseWriter, r *http.Request, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set(HeaderProof, k.ProveAnswer(r, status, text))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func TestAClientBelievesTheCoordinatorOfTheRunOnly(t *testing.T) {
	for name, answer := range map[string]func(k Key, w http.ResponseWriter, r *http.Request){
		"no proof": func(_ Key, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"version":1}`)) },
		"of another run": func(k Key, w http.ResponseWriter, r *http.Request) {
			prove(Key{Run: "r8", Secret: k.Secret}, w, r, http.StatusOK, State{Version: 1})
		},
		"of who does not know the secret": func(k Key, w http.ResponseWriter, r *http.Request) {
			prove(Key{Run: k.Run, Secret: "guessed"}, w, r, http.StatusConflict, Error{Message: "believe me"})
		},
		"the way to another": func(_ Key, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
	} {
		var s State
		err := coordinatorThat(t, answer).Get(t.Context(), PathState, nil, &s)
		var none *NoAnswerError
		if !errors.As(err, &none) || !strings.Contains(err.Error(), "somebody else listens") {
			t.Errorf("an answer with %s: %v, %+v", name, err, s)
		}
	}
}

func TestARefusalHasTheWordsOfTheCoordinator(t *testing.T) {
	c := coordinatorThat(t, func(k Key, w http.ResponseWriter, r *http.Request) {
		prove(k, w, r, http.StatusConflict, Error{Code: "not_now", Message: "no\x1b[31m\nmore"})
	})
	_, err := c.Post(t.Context(), PathDrain, Order{By: "anna"})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Code != "not_now" || refused.Status != http.StatusConflict || refused.Text != "no\uFFFD[31m\nmore" {
		t.Errorf("%v", err)
	}
}

func TestAnotherVersionOfTheAnswerIsRefused(t *testing.T) {
	c := coordinatorThat(t, func(k Key, w http.ResponseWriter, r *http.Request) {
		prove(k, w, r, http.StatusOK, State{Version: ControlVersion + 1})
	})
	if err := c.Get(t.Context(), PathState, nil, new(State)); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Error(err)
	}
}

func TestTheNextAddressIsTriedWhereNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	c := coordinatorThat(t, func(k Key, w http.ResponseWriter, r *http.Request) {
		if !k.CheckRequest(r, nil) || r.URL.Query().Get("state") != "a b" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		prove(k, w, r, http.StatusOK, BlockPage{Version: ControlVersion})
	})
	there := c.Addresses
	c.Addresses = append([]string{nobody}, there...)
	if err := c.Get(t.Context(), PathBlocks, map[string][]string{"state": {"a b"}}, new(BlockPage)); err != nil {
		t.Error(err)
	}
	c.Addresses = []string{nobody}
	var none *NoAnswerError
	if err := c.Get(t.Context(), PathState, nil, new(State)); !errors.As(err, &none) || !strings.Contains(err.Error(), nobody) {
		t.Error(err)
	}
	c.Addresses = nil
	if err := c.Get(t.Context(), PathState, nil, new(State)); !errors.As(err, &none) {
		t.Error(err)
	}
}
