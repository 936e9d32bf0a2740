// Package fleet decides how many workers to ask for, for which task, and which of those that have nothing to do move to
// another task or leave. It is pure: what it knows comes in as values, what it wants comes out as a list of orders.
//
// A worker has slots; a slot runs one block at a time and takes what its task requires of one budget. The rules, in the
// order in which Decide applies them:
//
//   - need is ready blocks that no slot covers: neither a free slot nor one of a worker that is still starting;
//   - an idle worker takes over a task of its own class that has need;
//   - free budget goes to need, by priority, downstream first when equal;
//   - if need is left and the budget is full, idle workers of other tasks leave at once, if that makes room;
//   - an idle worker leaves after the idle timeout, and at once when nothing can come for it any more.
//
// Where workers are jobs of a batch system, a Book keeps what that system holds of the run, and decides what to ask it when.
package fleet
