package slurm

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"example.org/daisy/launcher"
)

// Rows of our own queries begin and end with marks, so that what a wrapper or a banner of the site adds is told from them, and a
// row that was cut is noticed.
const (
	rowBegin = "daisy|"
	rowEnd   = "|$"
)

// squeueFormat has the fields of a row: array, element, job, state, end time, start time, cores, node, name, reason. The last two may
// hold anything.
const squeueFormat = rowBegin + "%F|%K|%A|%T|%e|%S|%C|%N|%j|%r" + rowEnd

// rows gives the rows of an answer, without their marks. It is an error if one is not whole.
func rows(answer string) (list []string, err error) {
	whole := strings.HasSuffix(answer, "\n")
	open := ""
	lines := strings.Split(strings.TrimSuffix(answer, "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case open != "" && strings.HasPrefix(line, rowBegin):
			return nil, fmt.Errorf("the answer lacks the end of a row, %s", clip(open))
		case open != "":
			open += "\n" + line // a name can hold a line break
		case strings.HasPrefix(line, rowBegin):
			open = line
		case i == len(lines)-1 && !whole && line != "" && strings.HasPrefix(rowBegin, line):
			return nil, fmt.Errorf("the answer is cut off at %q", line)
		}
		if strings.HasSuffix(open, rowEnd) && len(open) >= len(rowBegin)+len(rowEnd)-1 {
			list = append(list, strings.TrimSuffix(strings.TrimPrefix(open, rowBegin), rowEnd))
			open = ""
		}
	}
	if open != "" {
		return nil, fmt.Errorf("the answer is cut off in %s", clip(open))
	}
	return list, nil
}

// parseSqueue reads a whole answer of squeue. Rows of other jobs of this user are left out; plain says of a tag that its jobs are
// no arrays.
func parseSqueue(answer, run string, now time.Time, plain func(tag string) bool) (launcher.Listing, error) {
	list, err := rows(answer)
	if err != nil {
		return launcher.Listing{}, err
	}
	var all launcher.Listing
	for _, row := range list {
		f := strings.SplitN(row, "|", 9)
		if len(f) < 9 {
			return launcher.Listing{}, fmt.Errorf("a row of squeue has %d fields: %s", len(f), clip(row))
		}
		at := strings.LastIndex(f[8], "|")
		if at < 0 {
			return launcher.Listing{}, fmt.Errorf("a row of squeue has no reason: %s", clip(row))
		}
		name, reason := f[8][:at], f[8][at+1:]
		tag, ours := tagOf(name, run)
		if !ours {
			continue
		}
		e, spans, err := element(f, tag, reason, now, plain)
		if err != nil {
			return launcher.Listing{}, fmt.Errorf("%w in the row %s", err, clip(row))
		}
		for _, s := range spans {
			e.First, e.Last = s.first, s.last
			all.Elements = append(all.Elements, e)
		}
	}
	return all, nil
}

// element reads the first eight fields.
func element(f []string, tag, reason string, now time.Time, plain func(string) bool) (e launcher.Element, spans []span, err error) {
	e = launcher.Element{Tag: tag, Array: jobID(f[0]), Job: jobID(f[2]), Node: none(f[7]), Reason: reasonOf(reason)}
	if e.Array == "" || e.Job == "" {
		return e, nil, fmt.Errorf("no job id %q, %q", f[0], f[2])
	}
	e.State, e.Word, e.End = stateOf(f[3], e.Node)
	if e.Word == "" {
		return e, nil, errors.New("no state")
	}
	switch none(f[1]) {
	case "":
		if !plain(tag) {
			if e.State == launcher.Ended && e.Node == "" {
				return e, nil, nil // what was pending of an array that was cancelled whole: its elements are not told any more
			}
			if e.State != launcher.Pending && e.Node == "" {
				return e, nil, nil
			}
		}
		spans = []span{{0, 0}}
	default:
		if spans, e.Throttle, err = parseElements(f[1]); err != nil {
			return e, nil, err
		}
	}
	if e.State == launcher.Pending {
		e.Job = "" // all pending elements have the array's
		e.StartsIn = until(f[5], now)
	} else if e.State == launcher.Running {
		e.Left = until(f[4], now)
	}
	if n, err := strconv.Atoi(f[6]); err == nil && e.State != launcher.Pending {
		e.CPUs = max(n, 0)
	}
	return e, spans, nil
}

// none is "" for the words that Slurm has for nothing.
func none(s string) string {
	switch s = strings.TrimSpace(s); s {
	case "N/A", "(null)", "None", "None assigned", "NONE", "Unknown", "UNLIMITED":
		return ""
	}
	return s
}

// until is the time from now to a time in seconds since 1970, 0 if it is over or not known.
func until(s string, now time.Time) time.Duration {
	seconds, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || seconds > 1<<33 {
		return 0
	}
	return max(time.Unix(seconds, 0).Sub(now), 0)
}

// jobID is the number that s begins with, without the name of a cluster behind it, "" if it is none.
func jobID(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), ";")
	s, _, _ = strings.Cut(s, "@")
	if s == "" || len(s) > 18 || strings.Trim(s, "0123456789") != "" {
		return ""
	}
	return s
}

// A span is a range of elements, both ends included.
type span struct{ first, last int }

// mostElements is above the largest MaxArraySize that Slurm allows (4,000,001).
const mostElements = 4_000_001

// mostSpans bounds what one row can make of itself.
const mostSpans = 1 << 20

// parseElements reads the elements of a row: "3", "[3-7%2]", "0,2,4-6", "0-10:2". What Slurm has cut is an error.
func parseElements(s string) (spans []span, throttle int, err error) {
	bad := func() ([]span, int, error) {
		return nil, 0, fmt.Errorf("the elements %s cannot be read", clip(s))
	}
	text := strings.TrimSpace(s)
	if strings.HasPrefix(text, "[") != strings.HasSuffix(text, "]") {
		return bad()
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	text, limit, has := strings.Cut(text, "%")
	if has {
		if throttle, err = number(limit); err != nil {
			return bad()
		}
	}
	next := 0
	for part := range strings.SplitSeq(text, ",") {
		body, stride, hasStride := strings.Cut(part, ":")
		low, high, isRange := strings.Cut(body, "-")
		first, err := number(low)
		last, step := first, 1
		if err == nil && isRange {
			last, err = number(high)
		}
		if err == nil && hasStride {
			if step, err = number(stride); step == 0 || !isRange {
				return bad()
			}
		}
		if err != nil || last < first || first < next || step > 1 && len(spans)+(last-first)/step > mostSpans {
			return bad()
		}
		next = last + 1
		if step == 1 {
			spans = append(spans, span{first, last})
			continue
		}
		for i := first; i <= last; i += step {
			spans = append(spans, span{i, i})
		}
	}
	return spans, throttle, nil
}

func number(s string) (int, error) {
	if s == "" || len(s) > 7 || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("no number")
	}
	n, err := strconv.Atoi(s)
	if err == nil && n >= mostElements {
		err = errors.New("too large")
	}
	return n, err
}

// writeElements is the list of elements as scancel takes it: "0-3,7".
func writeElements(elements []int) string {
	var b strings.Builder
	for i := 0; i < len(elements); {
		k := i
		for k+1 < len(elements) && elements[k+1] == elements[k]+1 {
			k++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(elements[i]))
		if k > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(elements[k]))
		}
		i = k + 1
	}
	return b.String()
}

// submitted is a line in which sbatch says the id of a job, and nothing else: "123", "123;cluster", "Submitted batch job 123 on cluster x".
var submitted = regexp.MustCompile(`^(?:Submitted batch job ([0-9]{1,18})(?: on cluster \S+)?|([0-9]{1,18})(?:;[\w.-]+)?)$`)

// submittedID finds the id in what sbatch said, in the one line that has one. "" if there is none, or lines have several: then nobody knows
// which it is, and the job is to be found by its name.
func submittedID(answer string) string {
	id := ""
	for line := range strings.Lines(answer) {
		m := submitted.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n := m[1] + m[2]
		if strings.Trim(n, "0") == "" || id != "" && id != n {
			return ""
		}
		id = n
	}
	return id
}

// sacctFields are those of a row of sacct.
const sacctFields = "JobID,JobName,State,ExitCode,AllocCPUS,NodeList"

// parseSacct reads an answer of sacct -P -n. Steps and other jobs are left out.
func parseSacct(answer, run string, uid, slurmUID int) (launcher.Listing, error) {
	var all launcher.Listing
	for line := range strings.Lines(answer) {
		if !strings.HasSuffix(line, "\n") {
			return launcher.Listing{}, fmt.Errorf("the answer of sacct is cut off in %s", clip(line))
		}
		line = strings.TrimRight(line, "\r\n")
		f := strings.Split(line, "|")
		if len(f) < 6 {
			continue // a banner
		}
		// A name can hold anything; the fields around it cannot.
		name := strings.Join(f[1:len(f)-4], "|")
		f = append([]string{f[0], name}, f[len(f)-4:]...)
		tag, ours := tagOf(name, run)
		id, index, isElement := strings.Cut(f[0], "_")
		if !ours || strings.Contains(f[0], ".") || jobID(id) == "" {
			continue
		}
		e := launcher.Element{Tag: tag, Array: id, Node: none(f[5])}
		word, by, _ := strings.Cut(f[2], " ")
		e.State, e.Word, e.End = stateOf(word, e.Node)
		if e.Word == "" {
			return launcher.Listing{}, fmt.Errorf("no state in the row of sacct %s", clip(line))
		}
		if by, ok := strings.CutPrefix(by, "by "); ok && e.Word == "CANCELLED" {
			e.By = canceller(by, uid, slurmUID)
		}
		exitOf(&e.End, e.Word, f[3])
		if n, err := strconv.Atoi(f[4]); err == nil && e.State != launcher.Pending {
			e.CPUs = max(n, 0)
		}
		spans := []span{{0, 0}}
		if isElement {
			var err error
			if spans, e.Throttle, err = parseElements(index); err != nil {
				return launcher.Listing{}, err
			}
		}
		for _, s := range spans {
			e.First, e.Last = s.first, s.last
			all.Elements = append(all.Elements, e)
		}
	}
	return all, nil
}

func canceller(by string, uid, slurmUID int) launcher.Canceller {
	n, err := strconv.Atoi(strings.TrimSpace(by))
	switch {
	case err != nil:
		return launcher.CancelledByUnknown
	case n == uid:
		return launcher.CancelledByOwner
	case n == 0 || n == slurmUID:
		return launcher.CancelledBySystem
	default:
		return launcher.CancelledByOther
	}
}

// exitOf reads an exit code "status:signal". sacct takes 128 off a status from 128 up, so that FAILED with 0:0 is 128, and a status
// that is told may be 128 more.
func exitOf(end *launcher.End, word, code string) {
	status, signal, ok := strings.Cut(code, ":")
	a, errA := strconv.Atoi(status)
	b, errB := strconv.Atoi(signal)
	if word != "FAILED" || !ok || errA != nil || errB != nil {
		return
	}
	switch {
	case b == noLog:
		end.Detail = "Slurm could not open its log, or enter its folder, on the node (" + code + ")"
	case b > 0:
		end.Cause, end.Exit, end.Signal = launcher.Signalled, 0, b
	case a == 0:
		end.Exit = 128
	default:
		end.Exit = a
	}
}

// noLog stands where the signal does if a job could not begin, since its log or folder was not there.
const noLog = 53

// clip shortens what is quoted in a message.
func clip(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%.97q…", s[:97])
	}
	return fmt.Sprintf("%q", s)
}
