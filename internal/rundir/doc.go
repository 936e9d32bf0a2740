// Package rundir is the directory in which everything of one run lives. It is
// for people, and for coordinator and workers to find each other:
//
//	run.json          what this directory is: format version, run id, name, when it was made
//	job.toml          the job file as it was frozen
//	bin/              copies of the worker, and of daisy-submit where the coordinator is a job, so that an upgrade does not touch a run
//	discovery.json    where the coordinator listens
//	port              where it listens, for clients of daisy: the next one listens there again
//	secret            gives access to the run (0600)
//	certificate.pem   of the run, with its key, where other machines come in (0600)
//	coordinator.json  the job that is the coordinator, and coordinator.log its output, where it has no terminal
//	scripts/          batch scripts, if there are any
//	epoch             number of the coordinator's present life
//	lock              who coordinates the run
//	journal/          the truth (package journal)
//	logs/             one file a worker
//	outbox/           results that a worker could not deliver
//	stats.json        the statistics, final when the run has ended
//	stats.json.room   holds space for stats.json until then
//
// The directory is 0700. What others read to find each other is written under
// a temporary name, synced and renamed, and then its directory is synced, so that a reader on any
// machine sees the old file or the new one, never a part of one. The lock is written in
// place, always at the same length; journal and logs grow.
package rundir
