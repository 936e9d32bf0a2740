package process

import (
	"context"
	"errors"
	"os/exec"
	"testing"
)

// BenchmarkStartAndWait of /bin/true beside os/exec, several at once:
//
//	go test -bench StartAndWait -run - ./internal/process
func BenchmarkStartAndWait(b *testing.B) {
	b.Run("os_exec", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := exec.Command("/bin/true").Run(); err != nil {
					b.Error(err)
				}
			}
		})
	})
	if err := Adopt(); err != nil {
		b.Fatal(err)
	}
	s, err := NewSpawner()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	const lease = "DAISY_LEASE=1.1"
	c := Config{Argv: []string{"/bin/true"}, Env: []string{lease}, Input: make([]byte, 300), Markers: []string{lease}}
	run := func() error {
		p, err := s.Start(c)
		if err != nil {
			return err
		}
		if r := p.Wait(); !r.Success() {
			return errors.New(r.String())
		}
		_, err = p.EndStrays(b.Context(), 0)
		return err
	}
	b.Run("spawner", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := run(); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
