// Package sim is another shell of internal/engine: a whole run in virtual time. Workers, networks, disks, clocks, launchers and people
// are state machines that exchange events through one heap; the engine, the journal and tracking are the real ones. Everything
// follows from one seed, so that whatever goes wrong goes wrong again.
//
//	world.go        the run: configuration, the loop, lives of the coordinator, the result
//	heap.go         events in their order
//	coordinator.go  the shell: effects become deeds, deeds become events; coordinator_journal.go what is kept,
//	                coordinator_network.go what workers are told
//	worker.go       one worker's process and its end; worker_connection.go the protocol of internal/worker and its
//	                patience, worker_blocks.go its slots
//	network.go      connections: delay, loss, partitions, half-open ones
//	clock.go        stalls and suspended machines
//	usercode.go     how long blocks take and how they end
//	disk.go         files in memory that tear, fill up and lose what was not synced
//	launcher.go     a launcher of processes on one machine
//	batch.go        a batch system with arrays, limits, preemption and nodes that fail
//	queue.go        a launcher over that batch system
//	aside.go        a coordinator that is a job of the batch system
//	scenario.go     a world and its faults, drawn from a seed
//	faults.go       the faults, one by one
//	invariants.go   what must hold after every event; recount.go the recounts
//	shrink.go       fewer faults that still fail
//
// Beside it is a lean shell of the same engine, that tells people how a run would go (daisy-submit simulate):
//
//	forecast.go        the run and the account of it; forecast_heap.go what will happen
//	forecast_crew.go   workers; forecast_batch.go the batch system that they come from
//	forecast_path.go   the critical path
//	forecast_checks.go invariants that cost next to nothing
//	distribution.go    how long things take
//	picture.go         who did what when
//
// Rules that keep it reproducible: time is an integer; each kind of party has a random generator of its own, seeded from the
// seed; no decision depends on the order of a map.
package sim
