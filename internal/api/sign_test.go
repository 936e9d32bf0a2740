package api

import (
	"net/http"
	"strings"
	"testing"
)

func request(t testing.TB, method, target string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, "http://daisy"+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answerTo is an answer as the coordinator sends it.
func answerTo(k Key, r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{HeaderProof: {k.ProveAnswer(r, status, []byte(body))}}}
}

func TestAProofIsWhatTheDocumentationSays(t *testing.T) {
	k := Key{Run: "r7", Secret: strings.Repeat("s", 64)}
	r := request(t, http.MethodPost, PathJoin)
	r.Header.Set(HeaderNonce, "NONCE")
	// Made with another program: hmac.new(secret, b"".join(len(f).to_bytes(8, "big") + f for f in fields), "sha256").
	r.Header.Set(HeaderProof, "b61e9b81ae1dd45c6d62b970b2378d67691b33d4d84d8fc2522e868d1dcce07b")
	if !k.CheckRequest(r, []byte("{}")) {
		t.Error("the worker's proof is another")
	}
	if got, want := k.ProveAnswer(r, 200, []byte("{}")), "cdd9804e7b23725b7002c8234b3534b8c49a9f59f9da763dbdb25f13f2800f5c"; got != want {
		t.Errorf("the coordinator's proof is %s, want %s", got, want)
	}
}

func TestTheSecretIsNotSentAndEveryRequestHasItsOwnNonce(t *testing.T) {
	k := Key{Run: "r7", Secret: strings.Repeat("s", 64)}
	nonces := map[string]bool{}
	for range 10 {
		r := request(t, http.MethodGet, PathStream)
		k.SignRequest(r, nil)
		nonces[r.Header.Get(HeaderNonce)] = true
		var sent strings.Builder
		if err := r.Write(&sent); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(sent.String(), k.Secret) {
			t.Errorf("the secret is in %q", sent.String())
		}
	}
	if len(nonces) != 10 {
		t.Errorf("10 requests have %d nonces", len(nonces))
	}
}

func TestARequestIsBelievedOnlyAsItWasSigned(t *testing.T) {
	signed := Key{Run: "r7", Secret: strings.Repeat("s", 64)}
	other := map[string]func(k *Key, r *http.Request, body *string){
		"run":       func(k *Key, _ *http.Request, _ *string) { k.Run = "r8" },
		"secret":    func(k *Key, _ *http.Request, _ *string) { k.Secret = strings.Repeat("t", 64) },
		"method":    func(_ *Key, r *http.Request, _ *string) { r.Method = http.MethodGet },
		"path":      func(_ *Key, r *http.Request, _ *string) { r.URL.Path = PathStream },
		"query":     func(_ *Key, r *http.Request, _ *string) { r.URL.RawQuery = "force" },
		"nonce":     func(_ *Key, r *http.Request, _ *string) { r.Header.Set(HeaderNonce, "other") },
		"no proof":  func(_ *Key, r *http.Request, _ *string) { r.Header.Del(HeaderProof) },
		"cut proof": func(_ *Key, r *http.Request, _ *string) { r.Header.Set(HeaderProof, r.Header.Get(HeaderProof)[:62]) },
		"body":      func(_ *Key, _ *http.Request, body *string) { *body = "[]" },
		"longer":    func(_ *Key, _ *http.Request, body *string) { *body += " " },
		"of answers": func(_ *Key, r *http.Request, _ *string) {
			r.Header.Set(HeaderProof, signed.ProveAnswer(r, 0, []byte("{}")))
		},
	}
	other["nothing changed"] = func(*Key, *http.Request, *string) {}
	for name, change := range other {
		r, k, body := request(t, http.MethodPost, PathJoin), signed, "{}"
		k.SignRequest(r, []byte(body))
		change(&k, r, &body)
		if got, want := k.CheckRequest(r, []byte(body)), name == "nothing changed"; got != want {
			t.Errorf("%s: believed is %v, want %v", name, got, want)
		}
	}
}

func TestAnAnswerIsBelievedOnlyForTheRequestThatItAnswers(t *testing.T) {
	k := Key{Run: "r7", Secret: strings.Repeat("s", 64)}
	r := request(t, http.MethodPost, PathJoin)
	k.SignRequest(r, []byte("{}"))
	again := request(t, http.MethodPost, PathJoin)
	k.SignRequest(again, []byte("{}"))
	stream := request(t, http.MethodGet, PathStream)
	stream.Header.Set(HeaderNonce, r.Header.Get(HeaderNonce))
	right := answerTo(k, r, 200, "task")
	if !k.CheckAnswer(right, r, []byte("task")) {
		t.Error("a right answer is not believed")
	}
	reflected := &http.Response{StatusCode: 200, Header: r.Header}
	for name, believed := range map[string]bool{
		"without a proof":           k.CheckAnswer(&http.Response{StatusCode: 200}, r, []byte("task")),
		"with the worker's proof":   k.CheckAnswer(reflected, r, []byte("{}")),
		"of another body":           k.CheckAnswer(right, r, []byte("tusk")),
		"of an earlier request":     k.CheckAnswer(right, again, []byte("task")),
		"of another path":           k.CheckAnswer(right, stream, []byte("task")),
		"of another run":            k.CheckAnswer(answerTo(Key{Run: "r8", Secret: k.Secret}, r, 200, "task"), r, []byte("task")),
		"with another secret":       k.CheckAnswer(answerTo(Key{Run: k.Run, Secret: "guess"}, r, 200, "task"), r, []byte("task")),
		"that was made a refusal":   k.CheckAnswer(&http.Response{StatusCode: 403, Header: right.Header}, r, []byte("task")),
		"whose proof is not of hex": k.CheckAnswer(&http.Response{StatusCode: 200, Header: http.Header{HeaderProof: {"proof"}}}, r, []byte("task")),
	} {
		if believed {
			t.Errorf("an answer %s is believed", name)
		}
	}
}

// Two messages that differ have different proofs, wherever the end of one field and the beginning of the next may lie.
func FuzzNoTwoMessagesShareAProof(f *testing.F) {
	f.Add("r7", "nonce", "body", "r7", "noncebody", "")
	f.Add("r7", "ab", "c", "r7", "a", "bc")
	f.Add("r7POST", "", "", "r7", "", "POST")
	f.Add("", "", "", "", "", "\x00\x00\x00\x00\x00\x00\x00\x00")
	f.Fuzz(func(t *testing.T, run, nonce, body, otherRun, otherNonce, otherBody string) {
		prove := func(run, nonce, body string) string {
			r := request(t, http.MethodPost, PathJoin)
			r.Header.Set(HeaderNonce, nonce)
			return Key{Run: run, Secret: "secret"}.ProveAnswer(r, 200, []byte(body))
		}
		same := run == otherRun && nonce == otherNonce && body == otherBody
		if got := prove(run, nonce, body) == prove(otherRun, otherNonce, otherBody); got != same {
			t.Errorf("(%q, %q, %q) and (%q, %q, %q): equal proofs: %v", run, nonce, body, otherRun, otherNonce, otherBody, got)
		}
	})
}
