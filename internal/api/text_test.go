package api

import "testing"

func TestTextFromOutsideIsMadeHarmless(t *testing.T) {
	for text, want := range map[string][2]string{
		"plain, größer 体積":        {"plain, größer 体積", "plain, größer 体積"},
		"a\n\tb  c\r\nd\n":        {"a\n\tb  c\nd\n", "a b c d"},
		"\x1b[31mred\x1b[0m\a":    {"�[31mred�[0m�", "�[31mred�[0m�"},
		"50%\r60%":                {"50%�60%", "50% 60%"},
		"\xff not UTF-8":          {"� not UTF-8", "� not UTF-8"},
		"gnp.\u202eexe":           {"gnp.�exe", "gnp.�exe"}, // shown backwards
		"one\u0085two\u2028three": {"one�two\u2028three", "one two three"},
	} {
		if got := Printable(text); got != want[0] {
			t.Errorf("%q: got %q, want %q", text, got, want[0])
		}
		if got := OneLine(text); got != want[1] {
			t.Errorf("%q in one line: got %q, want %q", text, got, want[1])
		}
	}
}
