// Package wire is the stream between a coordinator and its own workers: frames, messages, a buffered reader and a
// coalescing writer. It knows how messages look, not what they mean.
//
// # Frame
//
//	u32 big-endian: length of all that follows | version byte (1) | kind byte | payload
//
// A frame has at most MaxFrame bytes behind its length, so the first byte of a stream is always 0x00. Numbers in a payload
// are unsigned varints in their shortest form (signed ones zigzag), strings are a varint length and that many bytes, lists
// are a varint count and their elements. Each message has exactly one encoding; a payload with bytes left over, a number
// that is not in its shortest form, or a length that the payload cannot hold is malformed, and is refused before anything
// is allocated for it. A Release may end with two numbers more, those that only a task with resource tracking has, and behind them with
// two of GPUs, where those were measured; without these the first two are never both 0.
//
// # Order of messages
//
// A worker opens a connection with Hello and waits for Welcome. From then on both sides send what they like, each a
// Heartbeat at least once per interval. A worker's request for blocks (Acquire) gets one answer (Blocks), as soon as there
// is a block. A Release is sent again after a reconnect until it has been Acknowledged or Refused.
package wire
