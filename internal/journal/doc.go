// Package journal is an append-only file of records that survives any crash:
// what Commit has returned for is there, whole and in order, or the reader
// says what is wrong and where. It knows nothing of what the records mean.
//
// # Files
//
// A journal directory holds segments named journal-<epoch>-<segment>.log. An
// epoch is one life of the writer; it never writes to a file of an earlier
// epoch, so that a writer that was taken over cannot mix its bytes with those
// of its successor. Records are numbered from 1 within an epoch, over all of
// its segments.
//
// # Format (version 1; all integers little endian; CRC is CRC-32C)
//
//	segment = header batch*
//	header  = "DAISYJNL"  version u32  segment u32  epoch u64  first u64
//	          after_epoch u64  after_record u64  crc u32        (52 bytes)
//	batch   = "\xdaB\xa7\x01"  records u32  bytes u64  first u64  crc u32
//	          (28 bytes)  frame*                                 (bytes bytes)
//	frame   = size u32  crc u32  payload     size = 4 + len(payload)
//
// first is the number of the first record that follows. after_epoch and
// after_record name the last record of earlier epochs that this epoch builds
// on (0, 0: not stated, all of them): what an earlier writer still wrote
// beyond it is void. The CRC of a batch header covers the epoch and the
// header; the CRC of a frame covers the epoch, the record's number, size and
// payload, so that bytes that were copied elsewhere do not pass.
//
// # Snapshots
//
// A file named snapshot-<epoch>-<segment>.snap stands for all records of
// earlier epochs, and for those of its epoch that are before the segment; the
// newest one counts. What it says is up to the caller.
//
//	snapshot = "DAISYSNP"  version u32  segment u32  epoch u64  record u64
//	           bytes u64                                          (40 bytes)
//	           state                                           (bytes bytes)
//	           crc u32                          of all that is before it
//
// record is the number of the last record of the epoch that it stands for; the
// segment goes on with the next one. A snapshot is written under a name that ends in .tmp, synced,
// and renamed; then the segments before it go, the oldest first. Killed at
// any instant, either they are there or the snapshot is; a reader passes over
// what it stands for. It is made of closed segments only, so that the writer goes on
// meanwhile. Where the first records are missing without a snapshot, that is damage.
//
// # Why batches
//
// A batch is what one Commit wrote with one write and one fsync. The next one
// is written only after that fsync has returned. So a damaged batch with
// another batch behind it was once durable, and the damage is an error; a
// damaged batch with nothing behind it is what a crash leaves, and is cut. A
// batch counts as a whole or not at all.
//
// # Failed writes
//
// After a write or an fsync that failed, nothing is known about the bytes
// behind the last good batch (a second fsync may report success for pages
// that the kernel has thrown away). Such a segment is left for good, and the
// same records go to a new segment, whose header says where it continues;
// what stands in the old one from there on is void.
//
// # Take-over
//
// A reader sees also what a killed writer had written but not synced, and what
// an fsync that failed has lost: the kernel shows that as long as it has the
// memory, and no later fsync brings it to the disk. Create has to build on what
// it was told was read. All of that but the last segment was synced before its
// successor was begun; so the last segment is copied to a file whose name ends
// in .tmp, which is synced and takes its name, before the new epoch has
// a file. A writer that was taken over goes on in a file without a name.
// Changes of the directory are taken to reach the disk in their order.
package journal
