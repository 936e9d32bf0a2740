// Package daisywire speaks the protocol of daisy 2.x between a server and its clients (Python's daisy.Client): frames, messages, the
// variable DAISY_CONTEXT, and a session that serves one connection of a client. It knows nothing of runs, tasks or leases; who has
// blocks implements Server and Blocks.
//
// # Frame
//
//	u32 big-endian: length of all that follows | version byte (2) | message
//
// A message is in the standard configuration of bincode 2: little endian; an unsigned integer up to 250 is one byte, and else a byte 251,
// 252 or 253 and 2, 4 or 8 bytes; a signed one is zigzag; a string or list is its length and its content; an option is 0, or 1 and the
// value; floats are raw; an enumeration is the number of its variant. Longer forms of a number, and bytes behind a message, are let be,
// as daisy does.
//
// # Dialects
//
// Sources of daisy 2 before its release had no version byte, no timeout in SendBlock, some no worker id in AcquireBlock, some no
// statistics in a block, some a seventh message, Register. The first frame of a connection tells: a client begins with AcquireBlock,
// Register or Disconnect, whose numbers are 0, 6 and 5, so that a message that begins with 2 has a version byte. What an older client does
// not know stands at the end of what it is sent, where its decoder lets it be.
//
// # Limits
//
// A frame has at most MaxFrame bytes. Its length is believed as far as bytes have come, and a length inside it as far as the frame can hold
// it: nothing is allocated for what is only announced.
package daisywire
