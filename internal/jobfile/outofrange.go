package jobfile

import (
	"errors"
	"strings"

	"github.com/BurntSushi/toml"
)

// outOfRange is a number, as it stands in the file, that 64 bits cannot hold.
type outOfRange string

func (n outOfRange) isNegative() bool { return strings.HasPrefix(string(n), "-") }

// inPlace begins the string that stands in the place of such a number while TOML is decoded. Nobody writes it.
const inPlace = "\x00out of range\x00"

// mostOutOfRange bounds how often a text is decoded.
const mostOutOfRange = 20

// decodeTOML decodes a text. A number that is out of range, which is an error without its key to the TOML library, is an outOfRange in it, so
// that who reads the key can say what is allowed there.
func decodeTOML(text string) (doc map[string]any, err error) {
	text = strings.TrimPrefix(text, "\ufeff") // the places of the library do not count it
	for n := 0; ; n++ {
		doc = nil
		_, err = toml.Decode(text, &doc)
		var syntax toml.ParseError
		if err == nil || !errors.As(err, &syntax) || n == mostOutOfRange {
			break
		}
		number, ok := strings.CutSuffix(syntax.Message, " is out of range for int64")
		if !ok {
			number, ok = strings.CutSuffix(syntax.Message, " is out of range for float64")
		}
		rest, found := strings.CutPrefix(text[min(syntax.Position.Start, len(text)):], number)
		if !ok || !found {
			break
		}
		text = text[:syntax.Position.Start] + `"` + strings.ReplaceAll(inPlace, "\x00", `\u0000`) + number + `"` + rest
	}
	if err == nil {
		restore(doc)
	}
	return doc, err
}

// restore puts numbers for what stands in their places.
func restore(v any) any {
	switch v := v.(type) {
	case string:
		if number, ok := strings.CutPrefix(v, inPlace); ok {
			return outOfRange(number)
		}
	case map[string]any:
		for k := range v {
			v[k] = restore(v[k])
		}
	case []any:
		for i := range v {
			v[i] = restore(v[i])
		}
	case []map[string]any:
		for i := range v {
			restore(v[i])
		}
	}
	return v
}
