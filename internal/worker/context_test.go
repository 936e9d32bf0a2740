package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// unwatched is for a context that nobody but the test looks at.
type unwatched struct{}

func (unwatched) contextEnded(error) {}

func TestAContextThatIsMadeLateIsAsOneOfPackageContext(t *testing.T) {
	why := errors.New("why")
	for name, before := range map[string]bool{"asked before it ends": true, "asked after": false} {
		synctest.Test(t, func(t *testing.T) {
			c := &blockContext{watcher: unwatched{}}
			var child context.Context
			told := make(chan struct{}, 1)
			ask := func() {
				var stop context.CancelFunc
				child, stop = context.WithCancel(c)
				t.Cleanup(stop)
				context.AfterFunc(c, func() { told <- struct{}{} })
			}
			if err := c.Err(); err != nil {
				t.Errorf("%s: it begins with %v", name, err)
			}
			if before {
				ask()
				select {
				case <-c.Done():
					t.Errorf("%s: it is done at once", name)
				default:
				}
			}
			c.cancel(why)
			c.cancel(errors.New("another"))
			if !before {
				ask()
			}
			<-c.Done()
			<-child.Done()
			<-told
			if c.Err() != context.Canceled || context.Cause(c) != why || context.Cause(child) != why || causeOf(c) != why {
				t.Errorf("%s: it ended with %v because of %v (its child: %v), want context.Canceled because of %v", name, c.Err(), context.Cause(c), context.Cause(child), why)
			}
		})
	}
}

type counted struct{ causes []error }

func (c *counted) contextEnded(cause error) { c.causes = append(c.causes, cause) }

func TestWhoWatchesAContextHearsOnceWhyItEnded(t *testing.T) {
	var w counted
	c := &blockContext{watcher: &w}
	c.cancel(errTaken)
	c.cancel(errStopped)
	if len(w.causes) != 1 || w.causes[0] != errTaken {
		t.Errorf("heard %v, want %v once", w.causes, errTaken)
	}
}
