package launcher

import (
	"context"
	"errors"
	"time"
)

// A Queue is a launcher over a batch system. Such a system does not say by itself what becomes of workers: it has to be asked,
// seldom, and its answers come late, incomplete or not at all. So a Queue decides nothing: it carries out single requests and
// hands on what it was told; what that means is worked out by its caller, who alone knows what was submitted under which tag.
// A Queue never calls the function given to Watch.
//
// A submission is an array of the system. Its name there holds the tag; its id is given out by the system, and bound to the tag
// by the caller (Bind), once. Its workers have the id in their environment as DAISY_ARRAY, in DAISY_RESTART how often the system has
// started them again, and in DAISY_NODE what it calls their node.
//
// Properties of a Queue have Queue set. An element that the system calls cancelled, by whomever, is Ended with Cause Cancelled; one
// whose node failed is Unknown with End.Cause NodeFailed, as it may be running all the same.
type Queue interface {
	Launcher

	// Bind says which array a tag stands for from now on. Cancel and Kill of its workers need it; what has no array is ignored.
	Bind(tag, array string)

	// List asks, in one call, for everything of this run that the system still knows, ended elements too. It returns an error
	// for every answer that is not complete: then nothing is known, and nothing is gone.
	List(ctx context.Context) (Listing, error)

	// Known asks whether the system knows an array at all. An error is no answer.
	Known(ctx context.Context, array string) (bool, error)

	// Account asks the accounting how elements of arrays ended; without arrays, for all that it knows of this run. ErrNoAccounting
	// where there is none.
	Account(ctx context.Context, arrays ...string) (Listing, error)

	// Throttle lets at most n elements of an array run at once, from 1.
	Throttle(ctx context.Context, array string, n int) error

	// Exclude keeps the pending elements of an array off nodes, in place of those of an earlier call. What has started since it was last
	// listed stays where it is, which is no error.
	Exclude(ctx context.Context, array string, nodes []string) error

	// CancelArray ends an array whole, pending elements and running ones, if it is of this run and carries this tag.
	CancelArray(ctx context.Context, tag, array string) error
}

// ErrNoAccounting says that the system keeps no accounts that can be asked.
var ErrNoAccounting = errors.New("the batch system keeps no accounting")

// ErrUnsure says of a Submit that the system may have accepted it or not: the answer was lost, or late.
var ErrUnsure = errors.New("the batch system did not answer: it may have accepted the submission")

// A Refusal is the error of a Submit that the system refused. Text has its words.
type Refusal struct {
	Kind RefusalKind
	Text string
	// Most is how many workers a submission may have, where RefusedForLimits says that; 0 = not known.
	Most int
}

// Error is the system's words.
func (r *Refusal) Error() string { return r.Text }

// RefusalKind is what a refusal means for the next attempt.
type RefusalKind uint8

const (
	// RefusedForNow: the system cannot be asked at the moment (controller away).
	RefusedForNow RefusalKind = iota
	// RefusedForLimits: too many at once for what this user may have queued: fewer or later may go.
	RefusedForLimits
	// RefusedForGood: it will never be accepted as it is (no such partition, more memory than any node has).
	RefusedForGood
)

// A Listing is one complete answer.
type Listing struct {
	Elements []Element
}

// An Element is one row of an answer: one element of an array, or several pending ones that are alike.
type Element struct {
	// Tag is that of the submission.
	Tag string
	// Array is the id of the array; Job the element's own, "" for pending ones.
	Array, Job string
	// First and Last are the elements that the row speaks of, both included; where one array's pending rest has gaps, it takes
	// several rows.
	First, Last int
	// State is Pending, Running or Ended; Unknown for what proves nothing (a failed node, a state that nobody knows), with Word.
	State State
	// Word is the system's own word for the state, in capitals.
	Word string
	// Reason is its word for why it is pending or ended, "" if it gave none.
	Reason Reason
	// End says how it ended; with State Ended.
	End End
	// By is who cancelled it, only in an Account.
	By Canceller
	// Throttle is how many elements of the array may run at once, 0 = no limit; of a pending row.
	Throttle int
	// Node is where it runs or ran.
	Node string
	// CPUs is what it was given, 0 if not known.
	CPUs int
	// Left is how long the system will still let it run, StartsIn when it thinks that a pending one will start; as of the
	// answer, and 0 if not known.
	Left, StartsIn time.Duration
}

// A Reason is why an element waits, or ended as it did.
type Reason struct {
	// Word is the system's own, Plain the same for people who do not know the system.
	Word, Plain string
	// Never: with this reason it will not start, however long one waits.
	Never bool
	// Failed: it was to be started, which failed, and it will not be tried again.
	Failed bool
}

// Canceller is who cancelled an element, as the accounting tells it.
type Canceller uint8

const (
	// CancelledByUnknown: it does not say, or nobody did.
	CancelledByUnknown Canceller = iota
	// CancelledByOwner: this user.
	CancelledByOwner
	// CancelledBySystem: the system itself, or its administrator's account.
	CancelledBySystem
	// CancelledByOther: another user, who is allowed to.
	CancelledByOther
)
