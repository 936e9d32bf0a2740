"""Finds the program daisy-submit, and runs it."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from typing import IO, Callable, List, Optional, Sequence, Set

from .errors import ProgramMissing

if sys.platform == "win32":
    raise ImportError("daisy_submit is for Linux and macOS; on Windows, use it within WSL")

_NAME = "daisy-submit"
# sysconfig fills its tables at the first question, and two threads that ask at once find them half full.
_sysconfig = threading.Lock()


def find() -> str:
    """$DAISY_SUBMIT, else the one that was installed with this package, else that of PATH."""
    named = os.environ.get("DAISY_SUBMIT")
    if named:
        found = shutil.which(named)
        if found is None:
            raise ProgramMissing(f"the variable DAISY_SUBMIT names {named}, which is no program that can be run")
        return os.path.abspath(found)
    folders = _folders()
    for folder in folders:
        path = os.path.join(folder, _NAME)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    on_path = shutil.which(_NAME)
    if on_path is None:
        raise ProgramMissing(
            f"the program {_NAME} is missing. It was looked for in the variable DAISY_SUBMIT (not set), in {', '.join(folders)}, and in PATH "
            f"({os.environ.get('PATH', '')}). The wheels of this package bring it along (make wheel); an installation from source does not: build "
            "it with make build, and set DAISY_SUBMIT to bin/daisy-submit"
        )
    return on_path


def _folders() -> List[str]:
    """Where pip puts programs: of this environment, of the user, and beside a package that is installed elsewhere."""
    schemes = ["", "posix_user", "osx_framework_user"]
    with _sysconfig:
        found = [sysconfig.get_path("scripts", s) if s else sysconfig.get_path("scripts") for s in schemes if not s or s in sysconfig.get_scheme_names()]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found += [os.path.join(package, "bin"), os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(package))), "bin")]  # --target, --prefix
    return [f for i, f in enumerate(found) if f not in found[:i]]


class Ended:
    """How the program ended, and the end of what it said to people."""

    def __init__(self, status: int, said: Sequence[str], interrupted: bool) -> None:
        self.status, self.said, self.interrupted = status, list(said), interrupted


# What is kept of the standard error.
_KEPT = 200


# Pipes that hold a run each. A child of os.fork (as of multiprocessing) has them as well, and would hold the run when this process is gone.
_holding: Set[IO[bytes]] = set()


def _let_go() -> None:
    while _holding:
        _holding.pop().close()


os.register_at_fork(after_in_child=_let_go)


def run(arguments: Sequence[str], folder: str, out: Callable[[str], None], err: Callable[[str], None], files: Sequence[int] = ()) -> Ended:
    """Runs daisy-submit in a folder, with open files, and gives on each line of both outputs. Ctrl-C, and an error in here, end it in order."""
    process = subprocess.Popen(
        [find(), *arguments],
        cwd=folder,
        pass_fds=files,
        # The program ends when this pipe does: whatever becomes of this process, nothing is left.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C is for this process, which passes it on; from the terminal as well it would be the second one, which means at once.
        start_new_session=True,
    )
    lines: queue.Queue[Optional[Callable[[], None]]] = queue.Queue()
    said: List[str] = []

    def noted(line: str) -> None:
        said.append(line)
        del said[:-_KEPT]
        err(line)

    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    readers = [threading.Thread(target=_read, args=a, daemon=True) for a in ((process.stdout, out, lines), (process.stderr, noted, lines))]
    interrupted = False
    try:
        _holding.add(process.stdin)
        for reader in readers:
            reader.start()
        left = len(readers)
        while left:
            try:
                deed = lines.get(timeout=1)
                if deed is None:
                    left -= 1
                else:
                    deed()
            except queue.Empty:
                if process.poll() is not None:
                    break  # what it has started, as at its end (on_end), holds its outputs open
            except KeyboardInterrupt:
                interrupted = True
                process.send_signal(signal.SIGINT)
        return Ended(process.wait(), said, interrupted)
    finally:
        if process.poll() is None:
            process.terminate()
        process.stdin.close()
        _holding.discard(process.stdin)
        process.wait()
        for reader, stream in zip(readers, (process.stdout, process.stderr)):
            reader.join(0.1)
            if not reader.is_alive():
                stream.close()


def _read(stream: IO[bytes], give: Callable[[str], None], lines: queue.Queue[Optional[Callable[[], None]]]) -> None:
    for raw in stream:
        line = raw.decode(errors="replace").rstrip("\n")
        lines.put(lambda line=line: give(line))  # type: ignore[misc]
    lines.put(None)
