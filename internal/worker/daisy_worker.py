"""The blocks of a daisy run, for a stream program in Python:

    import daisy_worker

    for block in daisy_worker.blocks():
        work(block.read, block.write)

A block is done when the loop goes on. An exception that leaves the loop fails its block and ends the program, and daisy starts
another for the next one. To go on after a failure, put the work into `with block:`, or give a function to run().

One file, standard library only, Python 3.8 or later.
"""

import json
import os
import sys
import traceback
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import BinaryIO, Callable, Iterator, NamedTuple, Optional, Sequence, Tuple, Type

__all__ = ["Block", "Roi", "blocks", "run"]

# An answer may be 1 MiB long; nobody reads a message of that length.
_LONGEST_ERROR = 4000


class Roi(NamedTuple):
    """A region: where it begins and its extents, one number for each axis. The end itself is outside."""

    offset: Tuple[int, ...]
    shape: Tuple[int, ...]

    @property
    def end(self) -> Tuple[int, ...]:
        return tuple(o + s for o, s in zip(self.offset, self.shape))

    @property
    def slices(self) -> Tuple[slice, ...]:
        """The region as an index of an array. A negative offset, which would count from the array's end, is an error."""
        if any(o < 0 for o in self.offset):
            raise ValueError(f"{self} begins before the array: take .clip(array.shape) of it first")
        return tuple(slice(o, e) for o, e in zip(self.offset, self.end))

    def clip(self, shape: Sequence[int]) -> "Roi":
        """The part of the region that is inside an array of this shape."""
        if len(shape) != len(self.offset):
            raise ValueError(f"{self} has {len(self.offset)} axes, the array has {len(shape)}")
        begin = tuple(min(max(o, 0), int(n)) for o, n in zip(self.offset, shape))
        end = tuple(min(max(e, 0), int(n)) for e, n in zip(self.end, shape))
        return Roi(begin, tuple(e - b for b, e in zip(begin, end)))

    def relative_to(self, other: "Roi") -> "Roi":
        """The region as seen from the begin of another: where block.write lies in the voxels that were read."""
        return Roi(tuple(o - p for o, p in zip(self.offset, other.offset)), self.shape)


class Block:
    """One block. `with block:` fails it if there is an exception, and goes on."""

    task: str
    block: Optional[int]  # the block's id; None where it has more than 64 bits
    index: Tuple[int, ...]  # its position in the grid, from 0
    read: Roi
    write: Roi
    attempt: int  # from 1
    lease: str  # names this hand-out

    def __init__(self, channel: "_Channel", line: bytes) -> None:
        try:
            data = json.loads(line)
            self.task = data["task"]
            self.block = data["block"]
            self.index = tuple(data["index"])
            self.read = Roi(tuple(data["read"]["offset"]), tuple(data["read"]["shape"]))
            self.write = Roi(tuple(data["write"]["offset"]), tuple(data["write"]["shape"]))
            self.attempt = data["attempt"]
            self.lease = data["lease"]
        except (ValueError, KeyError, TypeError) as e:
            raise RuntimeError(f"daisy_worker: no block on standard input: {line[:200]!r}: {e!r}") from e
        self._channel = channel
        self._answered = False

    def __repr__(self) -> str:
        return f"<block {self.block} of {self.task} at {self.index}, writes {self.write}, attempt {self.attempt}>"

    @property
    def answered(self) -> bool:
        return self._answered

    def done(self) -> None:
        """Says that the block is done. The loop says it when it goes on; needed only before a break or return."""
        self._answer({"lease": self.lease, "ok": True})

    def fail(self, error: str) -> None:
        """Says that the attempt failed, and why."""
        text = str(error)
        if len(text) > _LONGEST_ERROR:
            text = text[:_LONGEST_ERROR] + "…"
        self._answer({"lease": self.lease, "ok": False, "error": text})

    def __enter__(self) -> "Block":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> bool:
        if error is None:
            if not self._answered:
                self.done()
            return False
        while trace is not None and trace.tb_frame.f_code in _ours:
            trace = trace.tb_next  # whoever reads it looks for his own code
        if not isinstance(error, SystemExit):
            traceback.print_exception(kind, error, trace)
        if not self._answered:
            self.fail(describe(error))
        return isinstance(error, Exception)

    def _answer(self, answer: dict) -> None:
        if self._answered:
            raise RuntimeError(f"daisy_worker: {self} was answered already")
        self._answered = True
        self._channel.send(answer)


def describe(error: BaseException) -> str:
    """An exception as the last line of its traceback has it."""
    if isinstance(error, SystemExit):
        return f"SystemExit: {error.code}: it called sys.exit() instead of returning"
    # Of a SyntaxError the code comes first, indented; notes come last.
    lines = traceback.format_exception_only(type(error), error)
    return next((line for line in lines if not line.startswith(" ")), lines[-1]).strip()


class _Channel:
    """Both ends of the conversation with daisy."""

    def __init__(self) -> None:
        number = os.environ.get("DAISY_ANSWER_FD", "")
        if not number:
            raise RuntimeError(
                "daisy_worker: DAISY_ANSWER_FD is not set, so this program was not started by daisy: "
                'name it in a job file, run = { stream = ["python3", "program.py"] }, '
                "or try it with: daisy-worker conformance -- python3 program.py"
            )
        try:
            self._answers = int(number)
            # What the program starts does not get it: the descriptor is closed when the program ends, for whatever reason.
            os.set_inheritable(self._answers, False)
        except (ValueError, OSError) as e:
            raise RuntimeError(f"daisy_worker: DAISY_ANSWER_FD={number} is no open descriptor, as in a process that the program itself started: {e}") from e
        self._pid = os.getpid()
        self._blocks = _take_standard_input()
        self.current: Optional[Block] = None
        # Lines of a block that is killed are in the log; and no character ends the program.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True, errors="backslashreplace")
        self._excepthook = sys.excepthook
        sys.excepthook = self._unhandled

    def next(self) -> Optional[Block]:
        """Says that the last block is done, if nothing was said of it, and waits for the next; None = there are no more."""
        if self.current is not None and not self.current.answered:
            self.current.done()
        self.current = None
        line = b"\n"
        while line and not line.strip():
            line = self._blocks.readline()
        if line:
            self.current = Block(self, line)
        return self.current

    def send(self, answer: dict) -> None:
        if os.getpid() != self._pid:
            os._exit(1)  # a fork of the program came back to its loop: the block is its parent's
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, ValueError, OSError):
                pass  # without an output there is still an answer
        line = json.dumps(answer).encode() + b"\n"
        while line:
            line = line[os.write(self._answers, line) :]

    def _unhandled(self, kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        self._excepthook(kind, error, trace)
        if self.current is not None and not self.current.answered:
            self.current.fail(describe(error))


def _take_standard_input() -> BinaryIO:
    """Standard input for ourselves: what else reads it, in this process or one that it starts, would take blocks away."""
    own = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return os.fdopen(own, "rb")


_channel: Optional[_Channel] = None


def blocks() -> Iterator[Block]:
    """The blocks, one after another, until there are no more. Standard input is empty for everybody else from now on."""
    global _channel
    if _channel is None:
        _channel = _Channel()
    return iter(_channel.next, None)  # type: ignore[arg-type]


def run(function: Callable[[Block], object]) -> None:
    """Calls a function with each block. An exception fails the block; what the function returns does not count."""
    for block in blocks():
        with block:
            result = function(block)
            if isinstance(result, (GeneratorType, CoroutineType, AsyncGeneratorType)):
                raise TypeError(f"the function returned a {type(result).__name__}: nothing of it has run")


_ours = {run.__code__}  # left out of tracebacks
