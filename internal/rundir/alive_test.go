package rundir

import (
	"os"
	"testing"
	"time"
)

func TestARunIsCoordinatedWhileItsLockIsHeldByAProcessThatLives(t *testing.T) {
	d, err := Create("", "run", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, yes := d.Coordinated(); yes {
		t.Error("nobody has locked it yet")
	}
	l, err := d.TryLock()
	if err != nil {
		t.Fatal(err)
	}
	if owner, yes := d.Coordinated(); !yes || owner.PID != os.Getpid() {
		t.Errorf("got %+v, %v", owner, yes)
	}
	if owner, yes := d.coordinated(time.Now().Add(24 * time.Hour)); !yes {
		t.Errorf("a process that is there needs no fresh file: got %+v", owner)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, yes := d.Coordinated(); yes {
		t.Error("the lock was given back")
	}
}

func TestACoordinatorThatCannotBeSeenIsJudgedByTheAgeOfItsLock(t *testing.T) {
	d, err := Create("", "run", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := Owner{Host: "another machine", PID: 1, Process: "x", Token: "t"}
	if err := d.write(lockFile, elsewhere.encode()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if owner, yes := d.coordinated(now); !yes || owner.Host != elsewhere.Host {
		t.Errorf("just renewed: got %+v, %v", owner, yes)
	}
	if _, yes := d.coordinated(now.Add(unseenAfter + time.Minute)); yes {
		t.Error("not renewed for long")
	}
}
