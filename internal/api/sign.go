package api

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
)

// Headers of the proofs that worker and coordinator give each other. The secret itself is never sent.
const (
	// HeaderRun names the run that a request is meant for.
	HeaderRun = "Daisy-Run"
	// HeaderNonce is what the worker chose at random for this request alone.
	HeaderNonce = "Daisy-Nonce"
	// HeaderProof is the sender's proof, in requests and in answers.
	HeaderProof = "Daisy-Proof"
)

// A Key makes and checks the proofs of one run. A proof is, in hexadecimal, HMAC-SHA256 with the secret as the key over these
// fields, each after its length as a big-endian u64: the role ("worker" or "coordinator"), run id, method, path (with the query,
// if any), nonce, status in decimal (empty in requests), body. For the upgrade to a stream the body is empty on both sides.
//
// The worker believes nothing that came without a proof for its own nonce: neither a job nor a refusal. So whoever listens
// where a coordinator was learns no secret, and makes no worker do anything.
//
// The coordinator does not remember nonces. Who can read the traffic of a loopback interface (root) can send what a worker sent
// a second time, and thereby join as that worker: have its blocks handed to him and report them as done. He can do that for
// this run only. He cannot change or make up a request, learn the secret, or answer in the coordinator's place, since every
// request has a nonce of its own. Nothing here protects the frames that follow a right upgrade, or from somebody in between
// who passes all on: that takes TLS.
type Key struct{ Run, Secret string }

const (
	roleWorker      = "worker"
	roleCoordinator = "coordinator"
)

// SignRequest chooses a nonce and puts the worker's proof into the header of r, whose body is given.
func (k Key) SignRequest(r *http.Request, body []byte) {
	r.Header.Set(HeaderRun, k.Run)
	r.Header.Set(HeaderNonce, rand.Text())
	r.Header.Set(HeaderProof, hex.EncodeToString(k.proof(roleWorker, r, "", body)))
}

// CheckRequest reports whether r comes from somebody who knows the secret, and means this run.
func (k Key) CheckRequest(r *http.Request, body []byte) bool {
	return right(r.Header, k.proof(roleWorker, r, "", body))
}

// ProveAnswer is the coordinator's proof for the answer to r that has this status and body. r has been checked: whoever has
// not shown the secret is to get no proof.
func (k Key) ProveAnswer(r *http.Request, status int, body []byte) string {
	return hex.EncodeToString(k.proof(roleCoordinator, r, strconv.Itoa(status), body))
}

// CheckAnswer reports whether an answer to r, which SignRequest has signed, comes from the coordinator of the run.
func (k Key) CheckAnswer(answer *http.Response, r *http.Request, body []byte) bool {
	return right(answer.Header, k.proof(roleCoordinator, r, strconv.Itoa(answer.StatusCode), body))
}

func right(h http.Header, want []byte) bool {
	got, err := hex.DecodeString(h.Get(HeaderProof))
	return err == nil && hmac.Equal(got, want)
}

func (k Key) proof(role string, r *http.Request, status string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(k.Secret))
	for _, field := range [...]string{role, k.Run, r.Method, r.URL.RequestURI(), r.Header.Get(HeaderNonce), status} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		_, _ = io.WriteString(mac, field) // a hash takes everything
	}
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(body))))
	mac.Write(body)
	return mac.Sum(nil)
}
