package main

// specs are the benchmarks to run, in this order.
var specs = []spec{
	{"scheduler", "^BenchmarkCore$", "1x"},
	{"scheduler", "^BenchmarkFirstBlock$", "3x"},
	{"scheduler", "^BenchmarkLongestHold$", "1x"},
	{"internal/engine", "^BenchmarkEngine$", "3s"},
	{".", "^BenchmarkLibrary$", "1x"},
	{"internal/coordinator", "^BenchmarkDispatch$", "1x"},
	{"internal/worker", "^Benchmark(CommandBlocks|BareExec)$", "3s"},
	{"e2e", "^BenchmarkKilledWorker$", "1x"},
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
	atMost("first block, fresh run, 10^8 blocks: time", "scheduler", "BenchmarkFirstBlock/fresh", "worst-ms", 10, "ms"),
	atMost("first block, fresh run, 10^8 blocks: memory", "scheduler", "BenchmarkFirstBlock/fresh", "MB", 2, "MB"),
	atMost("first block, resume with 10^8 done marks", "scheduler", "BenchmarkFirstBlock/resume_last_left", "worst-ms", 1000, "ms"),
	atMost("longest hold: block that 10^8 need succeeds", "scheduler", "BenchmarkLongestHold/success", "longest-ms", 20, "ms"),
	atMost("longest hold: block that 10^8 need fails", "scheduler", "BenchmarkLongestHold/failure", "longest-ms", 20, "ms"),
	atMost("longest hold: task of 10^8 abandoned", "scheduler", "BenchmarkLongestHold/abandon", "longest-ms", 20, "ms"),
	rate("engine, timeouts armed", "internal/engine", "BenchmarkEngine", 1),
	rate("library, 16 functions, batches as they come", ".", "BenchmarkLibrary", 0.7),
	{what: "dispatch over TCP, one block a round trip, beside bare ping-pong", pkg: "internal/coordinator", name: "BenchmarkDispatch/plain", metric: "%pingpong", atLeast: 70, scale: 1, unit: "%"},
	rate("dispatch over TCP in batches of 16", "internal/coordinator", "BenchmarkDispatch/batch16", 0.5),
	rate("dispatch over TCP in batches of 64", "internal/coordinator", "BenchmarkDispatch/batch64", 1.2),
	{what: "command blocks of /bin/true beside os/exec", pkg: "internal/worker", name: "BenchmarkCommandBlocks", base: "BenchmarkBareExec", metric: "ns/op", atLeast: 80, scale: 1, unit: "%"},
	atMost("kill -9 of a worker to its block on a waiting one", "e2e", "BenchmarkKilledWorker/waiting", "ms", 50, "ms"),
	atMost("kill -9 of a worker to its block on a new one", "e2e", "BenchmarkKilledWorker/new", "ms", 500, "ms"),
}

func core(what, name string, millions float64) budget {
	return rate("core: "+what, "scheduler", "BenchmarkCore/"+name, millions)
}

func memory(what, name string) budget {
	return atMost("core: memory, "+what+", 10^8 blocks", "scheduler", "BenchmarkCore/"+name, "B/block", 1.25, "B/block")
}

func rate(what, pkg, name string, millions float64) budget {
	return budget{what: what, pkg: pkg, name: name, metric: "blocks/s", atLeast: millions * million, scale: million, unit: "M blocks/s"}
}

func atMost(what, pkg, name, metric string, most float64, unit string) budget {
	return budget{what: what, pkg: pkg, name: name, metric: metric, atMost: most, scale: 1, unit: unit}
}
