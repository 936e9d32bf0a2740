package daisywire

import (
	"fmt"
	"strings"
)

// Variable is the name of the environment variable that tells a client where its server is.
const Variable = "DAISY_CONTEXT"

// A Context is the value of DAISY_CONTEXT: named values, in any order. daisy's client reads hostname, port, task_id, worker_id, logdir
// (empty: no log files) and resource_tracking ("1": measure the blocks).
type Context []Value

// A Value is one of a context.
type Value struct{ Key, Text string }

// Get is the value of a key, the last one if there are several.
func (c Context) Get(key string) (text string, there bool) {
	for _, v := range c {
		if v.Key == key {
			text, there = v.Text, true
		}
	}
	return text, there
}

var (
	escape   = strings.NewReplacer("%", "%25", ":", "%3A", "=", "%3D")
	unescape = strings.NewReplacer("%25", "%", "%3A", ":", "%3a", ":", "%3D", "=", "%3d", "=")
)

// String is the context as the variable has it.
func (c Context) String() string {
	var b strings.Builder
	for i, v := range c {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(escape.Replace(v.Key))
		b.WriteByte('=')
		b.WriteString(escape.Replace(v.Text))
	}
	return b.String()
}

// ParseContext reads the value of DAISY_CONTEXT.
func ParseContext(s string) (Context, error) {
	var c Context
	for token := range strings.SplitSeq(s, ":") {
		if token == "" {
			continue
		}
		key, text, ok := strings.Cut(token, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not of the form key=value", Variable, token)
		}
		c = append(c, Value{unescape.Replace(key), unescape.Replace(text)})
	}
	return c, nil
}

// ContextOf is the context of a client: where its server listens, the task that it is to work on, its number, and whether it is to measure
// its blocks. It keeps no log files of its own.
func ContextOf(host, port, task, worker string, measure bool) Context {
	tracking := "0"
	if measure {
		tracking = "1"
	}
	return Context{{"hostname", host}, {"port", port}, {"task_id", task}, {"worker_id", worker}, {"logdir", ""}, {"resource_tracking", tracking}}
}
