// Package tracking keeps the marks that outlive a run: which blocks are done,
// and how often each failed. The files are those of daisy 2.0.0, so that either
// program can go on where the other stopped, and zarr-python can read them.
//
// # Layout
//
// One Zarr v3 group a task, with the attribute daisy_task_hash (see Hash) and two arrays:
//
//	done      uint8   nonzero = done
//	failures  uint32  failed attempts over all runs
//
// and, with resource tracking, what the attempt that made a block succeed has used, where 0 (not a number: cpu_seconds, gpu_util_pct)
// is what is not known:
//
//	wall_seconds, cpu_seconds, gpu_util_pct                    float32
//	peak_rss_bytes, io_read_bytes, io_write_bytes, gpu_mem_bytes  uint64
//
// All have the shape ceil(total read shape / block's write shape), one chunk
// c/0/0.. of exactly that shape, the codec "bytes" (little endian) alone, fill value 0.
// A block's cell is its index as in its id: (write offset − total read offset)
// / write shape, rounded down. With context this array is larger than the
// grid of blocks; cells that are no block's are ignored.
//
// # What is refused
//
// A wrong mark makes a run skip work that was never done, silently. So what
// cannot be read with certainty is refused, never guessed: another layout
// (*LayoutError), and any group whose metadata is missing, damaged or says
// something else than the above (*UnreadableError). A chunk that is not there
// is certain: in Zarr it means that every cell has the fill value.
//
// # Replacing a group
//
// One array in place of a group, as daisy wrote before 2.0.0, is as certain: Open makes a group of it. So does Migrate of the marks of a
// volume that has grown since, whose size Before finds by the hash. What was there is kept.
//
// Files are read with pread and written with pwrite, never mapped: a mapped file that is cut
// short on a network file system kills the process.
package tracking
