"""What can go wrong, so that a program can tell it apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence, Tuple

if TYPE_CHECKING:
    from .result import Failure, RunResult, TaskStats


class DaisySubmitError(Exception):
    """All errors of this package."""


class JobError(DaisySubmitError, ValueError):
    """The tasks or options are wrong; nothing was started."""


class FunctionRefused(JobError):
    """A worker cannot import the function by its name; nothing was started."""


class ProgramMissing(DaisySubmitError):
    """The program daisy-submit is not there; the message has the places that were searched."""


class RunNotComplete(DaisySubmitError):
    """The run ended before all blocks were done. result says how far it came."""

    def __init__(self, message: str, result: "RunResult") -> None:
        super().__init__(message)
        self.result = result


# How many failed blocks a message shows, and how many lines of the output of the first.
_SHOWN, _LINES = 5, 30


class BlocksFailed(RunNotComplete):
    """Blocks have failed for good. failures has the first 100 of each task, with what they said."""

    def __init__(self, result: "RunResult", following: Sequence[str] = ()) -> None:
        self.failures: Tuple["Failure", ...] = tuple(f for task in result.tasks.values() for f in task.failures)
        super().__init__("\n".join([*filter(None, [result.message]), *_message(result, self.failures), *following]), result)


def _message(result: "RunResult", failures: "Sequence[Failure]") -> List[str]:
    lines = [f"{task.id}: {', '.join(_ends(task))}" for task in result.tasks.values() if task.success + task.skipped < task.blocks]
    for i, f in enumerate(failures[:_SHOWN]):
        attempts = f"{f.attempts} attempt" + "s" * (f.attempts != 1)
        lines.append(f"{f.task} block {f.block if f.block is not None else f.index} failed after {attempts}: {f.message}")
        if i == 0 and f.tail:
            lines += ["    " + line for line in f.tail.splitlines()[-_LINES:]]
    if len(failures) > _SHOWN:
        lines.append(f"… and {len(failures) - _SHOWN} more in .failures")
    return lines


def _ends(task: "TaskStats") -> List[str]:
    counts = [f"{n} {name}" for name, n in (("failed", task.failed), ("orphaned", task.orphaned), ("abandoned", task.abandoned)) if n]
    return [f"of {task.blocks} blocks {counts[0]}"] + counts[1:] if counts else []
