package main

// specs are the benchmarks to run, in this order.
var specs = []spec{
	{"scheduler", "^BenchmarkCore$", "1x"},
	// A fresh run is the first thing that a process does: memory that was used before would have to be cleared.
	{"scheduler", "^BenchmarkFirstBlock$/^fresh$", "1x"},
	{"scheduler", "^BenchmarkFirstBlock$/^resume", "3x"},
	{"scheduler", "^BenchmarkLongestHold$", "1x"},
	{"scheduler", "^BenchmarkTouched$", "1x"},
	{"internal/engine", "^BenchmarkEngine$", "3s"},
	{".", "^BenchmarkLibrary(Batch1|Batch16)?$", "1x"},
	{"internal/coordinator", "^Benchmark(Dispatch|Connected)$", "1x"},
	{"internal/worker", "^Benchmark(CommandBlocks|BareExec)$", "3s"},
	{"e2e", "^BenchmarkKilledWorker$", "1x"},
	{"internal/sim", "^BenchmarkForecast$", "1x"},
}

const million = 1e6

// budgets are the lines of the table.
var budgets = []budget{
	core("no conflict, 10^6 blocks", "no_conflict/1e6", 12),
	core("no conflict, 10^8 blocks", "no_conflict/1e8", 12),
	core("conflict, 10^6 blocks", "conflict/1e6", 5),
	core("conflict, 10^8 blocks", "conflict/1e8", 5),
	core("chain of two, 10^6 blocks", "chain/1e6", 5),
	core("chain of two, 10^8 blocks", "chain/1e8", 5),
	core("diamond of four, 10^6 blocks", "diamond/1e6", 3),
	memory("no conflict", "no_conflict/1e8"),
	memory("conflict", "conflict/1e8"),
	memory("chain of two", "chain/1e8"),
	touched("is leased", "leased"),
	touched("waits for a retry", "retried"),
	touched("is held back before a retry", "held"),
	touched("failed for good", "failed"),
	atMost("first block, fresh run, 10^8 blocks: time", "scheduler", "BenchmarkFirstBlock/fresh", "worst-ms", 10, "ms"),
	atMost("first block, fresh run, 10^8 blocks: memory", "scheduler", "BenchmarkFirstBlock/fresh", "MB", 2, "MB"),
	atMost("first block, resume with 10^8 done marks", "scheduler", "BenchmarkFirstBlock/resume_last_left", "worst-ms", 1000, "ms"),
	hold("block that 10^8 need succeeds", "success"),
	hold("block that 10^8 need fails", "failure"),
	hold("block fails that 10^8 need, which need each other", "failure_above_conflict"),
	hold("task of 10^8 abandoned", "abandon"),
	hold("240 of 1000 blocks succeed that 4*10^6 need", "counters_beyond_a_byte"),
	hold("resume, all but one of 10^8 done", "all_but_one_done"),
	hold("resume, blocks that need 2*10^7 each", "resume_before_blocks_that_need_all"),
	hold("resume, block not done that 10^7 need", "resume_one_that_many_need"),
	hold("resume, 4 million blocks that had been tried", "resume_with_4e6_that_were_tried"),
	rate("engine, timeouts armed", "internal/engine", "BenchmarkEngine", 1),
	rate("library, 16 functions, batches of 1", ".", "BenchmarkLibraryBatch1", 0.7),
	rate("library, 16 functions, batches of 16", ".", "BenchmarkLibraryBatch16", 3),
	rate("library, 16 functions, batches as they come", ".", "BenchmarkLibrary", 3),
	{what: "dispatch over TCP, one block a round trip, beside bare ping-pong", pkg: "internal/coordinator", name: "BenchmarkDispatch/plain", metric: "%pingpong", atLeast: 70, scale: 1, unit: "%"},
	{what: "dispatch over TLS, one block a round trip, beside bare ping-pong without TLS", pkg: "internal/coordinator", name: "BenchmarkDispatch/tls", metric: "%pingpong", atLeast: 60, scale: 1, unit: "%"},
	rate("dispatch over TCP in batches of 16", "internal/coordinator", "BenchmarkDispatch/batch16", 0.5),
	rate("dispatch over TCP in batches of 64", "internal/coordinator", "BenchmarkDispatch/batch64", 1.2),
	atMost("10,000 connected workers over TCP: memory of each", "internal/coordinator", "BenchmarkConnected/plain", "KiB/worker", 16, "KiB"),
	atMost("10,000 connected workers over TLS: memory of each", "internal/coordinator", "BenchmarkConnected/tls", "KiB/worker", 56, "KiB"),
	{what: "command blocks of /bin/true beside os/exec", pkg: "internal/worker", name: "BenchmarkCommandBlocks", base: "BenchmarkBareExec", metric: "ns/op", atLeast: 80, scale: 1, unit: "%"},
	atMost("kill -9 of a worker to its block on a waiting one", "e2e", "BenchmarkKilledWorker/waiting", "ms", 50, "ms"),
	atMost("kill -9 of a worker to its block on a new one", "e2e", "BenchmarkKilledWorker/new", "ms", 500, "ms"),
	atMost("simulation of 10^7 blocks on 10,000 workers: time", "internal/sim", "BenchmarkForecast", "seconds", 120, "s"),
	atMost("simulation of 10^7 blocks on 10,000 workers: memory", "internal/sim", "BenchmarkForecast", "MB", 150, "MB"),
}

func core(what, name string, millions float64) budget {
	return rate("core: "+what, "scheduler", "BenchmarkCore/"+name, millions)
}

func memory(what, name string) budget {
	return atMost("core: memory, "+what+", 10^8 blocks", "scheduler", "BenchmarkCore/"+name, "B/block", 1.25, "B/block")
}

func touched(what, name string) budget {
	return atMost("core: memory beyond that, per block that "+what, "scheduler", "BenchmarkTouched/"+name, "B/block", 64, "B/block")
}

func hold(what, name string) budget {
	return atMost("longest hold: "+what, "scheduler", "BenchmarkLongestHold/"+name, "longest-ms", 20, "ms")
}

func rate(what, pkg, name string, millions float64) budget {
	return budget{what: what, pkg: pkg, name: name, metric: "blocks/s", atLeast: millions * million, scale: million, unit: "M blocks/s"}
}

func atMost(what, pkg, name, metric string, most float64, unit string) budget {
	return budget{what: what, pkg: pkg, name: name, metric: metric, atMost: most, scale: 1, unit: unit}
}
