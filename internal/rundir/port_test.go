package rundir

import (
	"os"
	"testing"
)

func TestThePortOfARunIsRemembered(t *testing.T) {
	d, err := Create(t.TempDir(), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	if port, err := d.Port(); port != 0 || err != nil {
		t.Errorf("of a new run: %d, %v", port, err)
	}
	for _, want := range []int{7000, 65535} {
		if err := d.WritePort(want); err != nil {
			t.Fatal(err)
		}
		if port, err := d.Port(); port != want || err != nil {
			t.Errorf("%d, %v; want %d", port, err, want)
		}
	}
	for _, text := range []string{"", "x", "0", "65536", "-1"} {
		if err := os.WriteFile(d.join(portFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if port, err := d.Port(); err == nil {
			t.Errorf("%q is port %d", text, port)
		}
	}
}
