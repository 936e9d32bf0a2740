package scheduler

// Tally counts the blocks of a task by where they stand, and the ends of attempts by kind. After every call
// Total = Waiting + Ready + Leased + Success + Skipped + Failed + Orphaned + Abandoned. Held blocks count as waiting.
type Tally struct {
	Total                                 int64
	Waiting, Ready, Leased                int64
	Success, Skipped, Failed, Orphaned    int64
	Abandoned                             int64
	Processed                             int64 // valid returns: attempts that ended success or failed
	Retries                               int64 // attempts begun whose block's previous end was failed, timed_out or out_of_memory
	TimedOut, Lost, Returned, OutOfMemory int64 // attempts that ended so
}

// unended is the number of blocks of which something may still become.
func (t *Tally) unended() int64 { return t.Waiting + t.Ready + t.Leased }
