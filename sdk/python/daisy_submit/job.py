"""Makes a job file of tasks: those of daisy 2, or our own of the same shape."""

from __future__ import annotations

import inspect
import json
import math
import numbers
import operator
import os
import re
import subprocess
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from . import arguments, toml
from .errors import FunctionRefused, JobError
from .reference import Reference, check_guard, reference
from .task import Pipeline, Task

# What daisy's run_blockwise takes and this one does not, with what there is instead.
INSTEAD = {
    "multiprocessing": 'there is launcher="serial", one block at a time in one process, and launcher="local"',
    "block_tracking": "there is tracking=FOLDER; without it no done marks are read or written",
    "return_states": "the result has the counts of each task, in .tasks",
    "host": 'there are listen="ADDRESS" and addresses=[..], which workers try; with launcher="local" neither is needed',
    "summary": "the result prints as a table; progress=False prints nothing",
}


class Job:
    """The content of a job file, and the masks that lie beside it."""

    def __init__(self, tasks: Any, run: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]], slurm: Mapping[str, Any], folder: str) -> None:
        self.folder = folder
        self.masks: Dict[str, bytes] = {}  # by task
        self.started: Dict[str, str] = {}  # references that daisy_submit.worker imports, and whose they are
        ordered, upstream = flatten(tasks)
        ids = [str(t.task_id) for t in ordered]
        unknown = sorted(set(settings) - set(ids) - {"*"})
        if unknown:
            raise JobError(f"settings names the task {unknown[0]!r}; there are {', '.join(ids)}, and \"*\" for all")
        self.run = dict(run)
        tracking = _tracking(ordered, folder)
        if tracking is not None:
            if self.run.get("tracking", tracking) != tracking:
                raise JobError(f"tracking={self.run['tracking']!r} and the tracking_path of the tasks, {tracking!r}, differ: give one of them")
            self.run["tracking"] = tracking
        self.slurm = dict(slurm)
        self.path = path = python_path(folder)
        self.tasks = [self._task(t, upstream[i], ids, path, settings) for i, t in enumerate(ordered)]

    def check_imports(self) -> None:
        """Imports what daisy-submit does not: it sees commands there."""
        environment = {**os.environ, "DAISY_WORKER_ID": "check"}
        if self.path:
            environment["PYTHONPATH"] = self.path
        for ref, what in self.started.items():
            command = [sys.executable, "-m", "daisy_submit.worker", "import", ref]
            done = subprocess.run(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise FunctionRefused(f"{what}: {sys.executable} cannot import {ref}, as a worker will: {done.stderr.strip()}")

    def text(self, masks: Mapping[str, str]) -> str:
        """The job file, with the paths of the masks by task."""
        parts = [toml.table("[run]", self.run)]
        if self.slurm:
            parts.append(toml.table("[slurm]", self.slurm))
        for task in self.tasks:
            content = dict(task)
            if content["id"] in masks:
                content["skip_mask"] = masks[content["id"]]
            parts.append(toml.table("[[task]]", content))
        return "\n".join(parts)

    def _task(self, task: Any, upstream: Sequence[int], ids: Sequence[str], path: str, settings: Mapping[str, Mapping[str, Any]]) -> Dict[str, Any]:
        name = str(task.task_id)
        what = f'task "{name}"'
        out: Dict[str, Any] = {"id": name}
        if upstream:
            out["after"] = [ids[i] for i in upstream]
        out["total"], out["read_roi"], out["write_roi"] = _region(task.total_roi), _region(task.read_roi), _region(task.write_roi)
        out["fit"], out["read_write_conflict"] = str(task.fit), bool(task.read_write_conflict)
        package = "daisy" if is_daisy(task) else "daisy_submit"
        out["run"] = self._code(task.process_function, package, what)
        if task.check_function is not None:
            ref = self._reference(task.check_function, f"check_function of {what}")
            self.started[ref.text(self.folder)] = f"check_function of {what}"
            out["check"] = {"command": [sys.executable, "-m", "daisy_submit.worker", "check", package, ref.text(self.folder)]}
        for key in _WHOLE:
            out[key] = operator.index(getattr(task, key))
        out["timeout"] = _timeout(task.timeout_secs)
        if task.requires:
            out["requires"] = _requires(task.requires, what)
        if getattr(task, "resource_tracking", False):
            out["resource_tracking"] = True
        if path:
            out["env"] = {"PYTHONPATH": path}
        if task.skip_mask is not None:
            self.masks[name] = npy(task.skip_mask, what)
        for more in (settings.get("*", {}), getattr(task, "settings", {}), settings.get(name, {})):
            for k, v in more.items():
                out[k] = {**out[k], **v} if k in ("env", "requires") and k in out else v
        return out

    def _code(self, function: Optional[Callable[..., Any]], package: str, what: str) -> Dict[str, Any]:
        if function is None:
            raise JobError(f"{what} has no process_function: nothing would run")
        ref = self._reference(function, f"process_function of {what}")
        if takes_block(function):
            return {"python": ref.text(self.folder), "interpreter": sys.executable, "block": package}
        self.started[ref.text(self.folder)] = f"process_function of {what}"
        return {"daisy": [sys.executable, "-m", "daisy_submit.worker", "loop", ref.text(self.folder)]}

    def _reference(self, function: Callable[..., Any], what: str) -> Reference:
        ref = reference(function, what)
        if ref.is_script:
            check_guard(what)
        return ref


def flatten(tasks: Any) -> Tuple[List[Any], List[List[int]]]:
    """The tasks of a task, a pipeline or a list, and for each the positions of those that it comes after."""
    given = [tasks] if hasattr(tasks, "task_id") else tasks
    edges: List[Tuple[Any, Any]] = []
    if hasattr(given, "edges") and hasattr(given, "tasks"):
        edges, given = list(given.edges), list(given.tasks)
    if not isinstance(given, (list, tuple)):
        raise JobError(f"wanted a Task, a Pipeline, or a list of tasks; found a {type(tasks).__name__}")
    if not given:
        raise JobError("there is no task")
    ordered: List[Any] = []
    after: Dict[int, List[Any]] = {}

    def visit(task: Any) -> None:
        if any(task is t for t in ordered):
            return
        _check_kind(task)
        ordered.append(task)
        # upstream_tasks of a daisy 2 task are kept in an attribute of its own.
        given = getattr(task, "upstream_tasks", None) or getattr(task, "_v1_upstream_tasks", None) or ()
        arguments.check([(f'task "{task.task_id}": upstream_tasks', given, isinstance(given, (list, tuple)), "a list of tasks")])
        after[id(task)] = list(given)
        for up in after[id(task)]:
            visit(up)

    for task in given:
        visit(task)
    for up, down in edges:
        if not any(up is t for t in after[id(down)]):
            after[id(down)].append(up)
    return ordered, [[next(i for i, t in enumerate(ordered) if t is up) for up in after[id(task)]] for task in ordered]


def is_daisy(task: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "daisy" for kind in type(task).__mro__)


def _check_kind(task: Any) -> None:
    if isinstance(task, Task):
        return
    if not is_daisy(task):
        raise JobError(f"{task!r} is a {type(task).__name__}; wanted a Task of daisy 2 or of daisy_submit")
    if not hasattr(task, "timeout_secs"):
        raise JobError(f"{task!r} is of another daisy than 2, probably 1: pip install 'daisy>=2', which takes tasks of daisy 1, or use daisy_submit.Task")


def takes_block(function: Callable[..., Any]) -> bool:
    """As daisy tells the two kinds apart: a function without positional arguments is a worker, which asks for blocks itself."""
    try:
        return any(a != "self" for a in inspect.getfullargspec(function).args)
    except TypeError:
        return True  # it does not tell; what is wrong then, the check before the run says


# Arguments of a task that are whole numbers.
_WHOLE = ("max_workers", "max_retries", "max_worker_restarts")


def rows_of(task: Any) -> List[arguments.Row]:
    """What is wrong with the arguments of a task."""
    rows: List[arguments.Row] = [(r, getattr(task, r), _is_region(getattr(task, r)), "a Roi with a begin and an end on each axis") for r in ("total_roi", "read_roi", "write_roi")]
    rows += [(key, getattr(task, key), hasattr(getattr(task, key), "__index__"), "a whole number") for key in _WHOLE]
    seconds, path = task.timeout_secs, getattr(task, "done_marker_path", None)
    rows.append(("timeout", seconds, isinstance(seconds, numbers.Real) and float(seconds) >= 0, "seconds, 0 or infinity for no limit"))
    rows.append(("tracking_path", path, path is None or path is False or arguments.is_path(path), "a path"))
    rows += arguments.table("requires", task.requires or {}) + arguments.keys_of_task("settings", getattr(task, "settings", {}))
    return [(f'task "{task.task_id}": {name}', *rest) for name, *rest in rows]


def _is_region(roi: Any) -> bool:
    try:
        return all(hasattr(v, "__index__") for v in (*roi.offset, *roi.shape))
    except (AttributeError, TypeError):
        return False


def _region(roi: Any) -> Dict[str, Any]:
    return {"offset": [v.__index__() for v in roi.offset], "shape": [v.__index__() for v in roi.shape]}


def _timeout(given: Any) -> str:
    """As a job file has it, where no limit is 0: in daisy that is infinity."""
    seconds = float(given)
    if seconds == math.inf:
        return "0s"
    return f"{max(round(seconds * 1000), 1)}ms" if seconds % 1 else f"{int(seconds)}s"


def _requires(requires: Mapping[str, Any], what: str) -> Dict[str, Any]:
    if isinstance(requires.get("memory"), int):
        raise JobError(
            f'{what}: requires {{"memory": {requires["memory"]}}} has no unit. Memory is a size here, which blocks may be held to: write '
            f'settings={{TASK: {{"requires": {{"memory": "16GiB"}}}}}}, or give what is only counted another name, such as "memory_gb"'
        )
    return dict(requires)


def _tracking(tasks: Sequence[Any], folder: str) -> Optional[str]:
    """The folder of the done marks, where the tasks name one: there is one for a run, with a group for each task in it."""
    found = {str(t.task_id): _tracking_path(t) for t in tasks}
    if all(p is None for p in found.values()):
        return None
    folders = set()
    for name, path in found.items():
        if path is None:
            raise JobError(f'task "{name}" has no tracking_path and others have: a run tracks all of its tasks, or none (run_blockwise(tracking=FOLDER))')
        at = os.path.abspath(os.path.join(folder, path))
        if os.path.basename(at) != name:
            raise JobError(f'task "{name}": tracking_path is {path}; wanted a folder FOLDER/{name}, where FOLDER is the same for all tasks of the run')
        folders.add(os.path.dirname(at))
    if len(folders) > 1:
        raise JobError(f"the tasks have tracking folders in {' and '.join(sorted(folders))}: wanted one folder for all tasks of a run")
    return folders.pop()


def _tracking_path(task: Any) -> Optional[str]:
    path = getattr(task, "done_marker_path", None)
    if path is None and is_daisy(task):
        import daisy

        base = daisy.get_tracking_basedir()
        return None if base is None else os.path.join(str(base), str(task.task_id))
    return None if path is None or path is False else os.fspath(path)


def npy(mask: Any, what: str) -> bytes:
    """A mask as a .npy file of uint8."""
    try:
        data = memoryview(mask)
    except TypeError:
        data = None
    if data is None or data.ndim == 0 or data.itemsize != 1:
        raise JobError(f"{what}: skip_mask is {mask!r}; wanted an array of bool or uint8 with the shape of the grid of blocks")
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({', '.join(map(str, data.shape or ()))},), }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data.tobytes()


def python_path(folder: str) -> str:
    """What workers need in PYTHONPATH to import what this process can: folders that the interpreter does not search by itself."""
    if not sys.executable:
        raise JobError("this Python does not know its own program (sys.executable), which workers are to use; run the script with python")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    own = subprocess.run([sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"], env=environment, cwd=folder, capture_output=True, text=True, check=True)
    known = set(json.loads(own.stdout.splitlines()[-1]))
    folders: List[str] = []
    for entry in sys.path:
        at = os.path.abspath(entry)
        if entry not in known and at not in known and at not in folders and at != folder and os.path.exists(at):
            folders.append(at)
    return os.pathsep.join(folders)


def run_name(given: Optional[str]) -> str:
    """A name for the run: that of the program that runs now."""
    if given is not None:
        return given
    folder, file = os.path.split(os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "notebook"))
    stem = os.path.basename(folder) if file == "__main__.py" else os.path.splitext(file)[0]
    return re.sub(r"[^A-Za-z0-9_.-]", "-", stem)[:64] or "run"


__all__ = ["INSTEAD", "Job", "Pipeline", "flatten", "run_name"]
