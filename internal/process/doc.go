// Package process starts programs so that they can be ended with everything that they started, and measures them.
//
// Every program runs in a process group of its own and dies with the process that started it: on Linux by a death signal,
// elsewhere through a guard that watches a pipe. What leaves the group (setsid) is found by parentage and by marker
// variables in its environment (Linux; elsewhere only the group is known). Starting and waiting costs about what it costs
// with os/exec (BenchmarkStartAndWait).
//
// It also says what the machine has (ThisMachine), where a program is (LookPath) and how many files may be open (FileLimit).
package process
