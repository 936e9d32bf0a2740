// Package engine is a run as a value. Events and the time go in, ordered effects come out; nothing else happens in it: no
// I/O, no goroutine, no clock, no randomness. An Engine has one owner at a time; the coordinator turns sockets, files, timers and
// child processes into events for it, and its effects into deeds.
//
// Where to find what:
//
//	engine.go     Apply: what happens to an event, in which order
//	joins.go      workers introduce themselves, attach, detach, leave
//	launched.go   workers that a launcher started: submissions, their ends
//	silence.go    workers that say nothing: suspect, given up, killed
//	leases.go     which worker holds what, and which of it has started
//	dispatch.go   blocks for waiting workers, recall
//	returns.go    ends of attempts
//	durable.go    what is durable before what; the journal's marks
//	timers.go     timeouts of blocks, retries that wait, the next wake-up
//	demand.go     what the fleet wants
//	stop.go       every way in which a run ends
//	aside.go      how a coordinator ends while its run goes on
//	control.go    what people change meanwhile; settings.go keeps it, exclude.go nodes that are not to be used
//	snapshot.go   what people see; control_view.go while the run goes on; waits.go why nothing happens
//	record.go     the journal's records; coder.go their bytes
//	past.go       what earlier epochs have left: a resume; past_bytes.go as bytes; marks.go into tracking
//	rejoin.go     workers of earlier epochs that come back
//	estimate.go   how long blocks take, and the fair share
//	batch.go      workers of a batch system: what it is asked, what is made of what was found out
//	adopt.go      what a batch system may hold of earlier epochs; jobs.go shows what it holds
//	shares.go     workers that wait behind the throttle of their array
//	fits.go       blocks that fit in what is left of a worker's time
//	fill.go       workers with as many slots as their job holds
//
// Three rules hold everywhere. Counts live in the scheduler only. What must be durable before something else may happen waits
// in one queue (Engine.queue) in the order of its records. All deadlines stand on a clock that leaves out the time in which
// nobody called Apply though something was due, so that a coordinator that was stopped judges nobody for it.
package engine
