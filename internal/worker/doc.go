// Package worker is a worker: it joins a coordinator, acquires blocks, runs user code on them, measures, and releases them.
//
// Client is the protocol alone: it keeps one connection for all slots, reconnects with the leases that it holds, sends a
// result again until it is acknowledged, and gives up when nobody has been heard for too long. Run is a whole worker: a
// Client, and one loop per slot that runs blocks with the runner of the task ("command", "stream",
// "python", "daisy" or "func").
//
// A block's way: Client.Acquire → check (optional) → runner → Client.Release. What a block writes goes to the worker's log,
// each line marked with the block; the end of it goes with the release of a failed attempt.
package worker
