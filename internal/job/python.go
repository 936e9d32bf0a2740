package job

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// identifier is a name in Python; which letters are allowed beyond ASCII is Python's business.
var identifier = regexp.MustCompile(`^[A-Za-z_\x{80}-\x{10FFFF}][A-Za-z0-9_\x{80}-\x{10FFFF}]*$`)

// SplitReference takes "module:function" or "file.py:function" apart. isFile tells the two from each other.
func SplitReference(ref string) (target, function string, isFile bool) {
	i := strings.LastIndexByte(ref, ':')
	if i < 0 {
		return ref, "", strings.HasSuffix(ref, ".py")
	}
	return ref[:i], ref[i+1:], strings.HasSuffix(ref[:i], ".py")
}

// checkReference says what is wrong with the form of a reference to a Python function: what a worker cannot import by name.
func checkReference(ref string) error {
	const wanted = `wanted "module:function" or "file.py:function"`
	target, function, isFile := SplitReference(ref)
	dotted := func(name string) bool {
		for part := range strings.SplitSeq(name, ".") {
			if !identifier.MatchString(part) {
				return false
			}
		}
		return true
	}
	switch {
	case ref == "":
		return errors.New("names no function; " + wanted)
	case strings.Contains(target, ".ipynb"):
		return fmt.Errorf("%q is a notebook, which cannot be imported: move the function to a file beside it (jupyter nbconvert --to script) and name that, \"file.py:function\"", target)
	case strings.Contains(function, "<lambda>") || strings.HasPrefix(function, "lambda"):
		return fmt.Errorf("%q is a lambda, which has no name to import it by: write a function with def at the top level of a module; %s", function, wanted)
	case strings.Contains(function, "<locals>"):
		return fmt.Errorf("%q is defined inside a function (a closure), where no import reaches it: move it to the top level of its module; %s", function, wanted)
	case target == "__main__":
		return fmt.Errorf("__main__ is whichever program runs, and on a worker that is not yours: name the file, \"file.py:%s\"", function)
	case strings.HasSuffix(function, ")"):
		return fmt.Errorf("%q is a call, and the function is called with each block: write %q", function, target+":"+function[:strings.IndexByte(function+"(", '(')])
	case function == "" && isFile:
		return fmt.Errorf("names no function in %s; write %q", target, target+":function")
	case function == "" && dotted(target) && strings.Contains(target, "."):
		i := strings.LastIndexByte(target, '.')
		return fmt.Errorf("%q has no \":\" before the function; did you mean %q?", ref, target[:i]+":"+target[i+1:])
	case function == "" || target == "":
		return fmt.Errorf("%q is no function; %s", ref, wanted)
	case !dotted(function):
		return fmt.Errorf("%q is not the name of a function; %s", function, wanted)
	case !isFile && strings.Contains(target, "/"):
		return fmt.Errorf("%q is a path, but not that of a Python file; did you mean %q?", target, target+".py:"+function)
	case !isFile && !dotted(target):
		return fmt.Errorf("%q is not the name of a module; %s", target, wanted)
	}
	return nil
}
