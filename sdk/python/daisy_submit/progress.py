"""Shows how far a run is: bars in a terminal or a notebook, lines elsewhere."""

from __future__ import annotations

import html
import shutil
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, TextIO, Tuple, Union

from .errors import JobError


@dataclass(frozen=True)
class TaskProgress:
    """Where a task stands. Counts are of blocks; rates and times are None where there is nothing to say."""

    id: str
    state: str
    blocks: int
    waiting: int
    ready: int
    leased: int
    success: int
    skipped: int
    failed: int
    orphaned: int
    abandoned: int
    retries: int
    slots: int
    per_second: Optional[float]
    eta_seconds: Optional[float]
    waits: Optional[str]

    @property
    def done(self) -> int:
        """Blocks that need not run again."""
        return self.success + self.skipped

    @property
    def ended(self) -> int:
        return self.success + self.skipped + self.failed + self.orphaned + self.abandoned


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    state: str
    elapsed_seconds: float
    tasks: Tuple[TaskProgress, ...]


def read(line: Mapping[str, Any]) -> Progress:
    tasks = tuple(TaskProgress(**{k: t[k] for k in TaskProgress.__dataclass_fields__}) for t in line["tasks"])
    return Progress(line["state"], line["elapsed_seconds"], tasks)


def at_end(stats: Mapping[str, Any]) -> Progress:
    """The last one, of a stats.json."""
    still = {"slots": 0, "per_second": None, "eta_seconds": None, "waits": None}
    run = stats["run"]
    return read({"state": run["state"], "elapsed_seconds": run["wall_seconds"], "tasks": [{**t, **still} for t in stats["tasks"]]})


Choice = Union[bool, Callable[[Progress], object]]


class Silent:
    """Shows nothing."""

    def update(self, progress: Progress) -> None:
        pass

    def notice(self, text: str) -> None:
        pass

    def end(self, progress: Progress) -> None:
        self.update(progress)


class Called(Silent):
    """Gives it to a function."""

    def __init__(self, function: Callable[[Progress], object]) -> None:
        self._function = function

    def update(self, progress: Progress) -> None:
        self._function(progress)


class Lines(Silent):
    """A line for each task, every ten seconds at most, for logs."""

    def __init__(self, out: TextIO, every: float = 10) -> None:
        self._out, self._every, self._last = out, every, time.monotonic()

    def update(self, progress: Progress) -> None:
        if time.monotonic() - self._last >= self._every:
            self.end(progress)

    def end(self, progress: Progress) -> None:
        self._last = time.monotonic()
        for text in bars(progress, 0):
            self.notice(text)

    def notice(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class Terminal(Silent):
    """Bars that stay at the bottom, and notices above them."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._shown = out, 0
        self._latest: List[str] = []

    def update(self, progress: Progress) -> None:
        columns, lines = shutil.get_terminal_size()
        shown = bars(progress, 20)
        if len(shown) > lines - 2:  # what has scrolled out cannot be drawn again
            shown = shown[: lines - 3] + [f"… and {len(shown) - lines + 3} more tasks"]
        self._latest = [line[: columns - 1] for line in shown]
        self._draw()

    def notice(self, text: str) -> None:
        self._erase()
        self._out.write(text + "\n")
        self._draw()

    def _draw(self) -> None:
        self._erase()
        self._out.write("".join(line + "\n" for line in self._latest))
        self._shown = len(self._latest)
        self._out.flush()

    def _erase(self) -> None:
        if self._shown:
            self._out.write(f"\x1b[{self._shown}A\x1b[J")
        self._shown = 0


class Notebook(Silent):
    """Bars in the output of a cell, and the latest notices below."""

    def __init__(self, display: Callable[..., Any], markup: Callable[[str], Any]) -> None:
        self._markup = markup
        self._bars: List[str] = []
        self._notices: List[str] = []
        self._handle = display(self._content(), display_id=True)

    def update(self, progress: Progress) -> None:
        self._bars = bars(progress, 20)
        self._handle.update(self._content())

    def notice(self, text: str) -> None:
        self._notices = (self._notices + [text])[-8:]
        self._handle.update(self._content())

    def _content(self) -> Any:
        return self._markup("<pre>" + html.escape("\n".join(self._bars + self._notices) or "starting …") + "</pre>")


def bars(progress: Progress, width: int) -> List[str]:
    """A line for each task; width is that of the bar, 0 = none."""
    name = max((len(t.id) for t in progress.tasks), default=0)
    return [_bar(t, name, width) for t in progress.tasks]


def _bar(t: TaskProgress, name: int, width: int) -> str:
    done, blocks = (t.done, t.blocks) if t.blocks else (1, 1)
    full = done * width // blocks
    bar = "█" * full + "░" * (width - full) + " " if width else ""
    words = [f"{t.done:,}/{t.blocks:,}", f"{done * 100 // blocks:3}%"]
    if t.per_second:
        words.append(f"{t.per_second:.3g}/s")
    if t.eta_seconds is not None and t.ended < t.blocks:
        words.append(f"{_time(t.eta_seconds)} left")
    words += [f"{n:,} {what}" for n, what in ((t.leased, "running"), (t.skipped, "skipped"), (t.failed, "FAILED"), (t.orphaned, "orphaned"), (t.abandoned, "abandoned")) if n]
    if t.waits:
        words.append(t.waits)
    return f"{t.id.ljust(name)}  {bar}{'  '.join(words)}"


def _time(seconds: float) -> str:
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


def choose(wanted: Choice) -> Silent:
    """False: nothing; a function: it; True: what fits to where this runs."""
    if callable(wanted):
        return Called(wanted)
    if not wanted:
        return Silent()
    if wanted is not True:
        raise JobError(f"progress is {wanted!r}; wanted True, False, or a function that gets a Progress")
    if "IPython" in sys.modules:
        from IPython import get_ipython  # type: ignore[import-not-found,unused-ignore]

        shell = get_ipython()  # type: ignore[no-untyped-call,unused-ignore]
        if shell is not None and hasattr(shell, "kernel"):
            from IPython.display import HTML, display  # type: ignore[import-not-found,unused-ignore]

            return Notebook(display, HTML)
    return Terminal(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
