"""python -m daisy_submit export script.py:pipeline > job.toml"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import Any, List, Optional

from . import run
from .errors import DaisySubmitError, JobError


def tasks_of(reference: str) -> Any:
    """What a script calls by that name: a Task, a Pipeline, a list of tasks, or a function that makes one."""
    path, _, name = reference.rpartition(":")
    if not path.endswith(".py") or not name:
        raise JobError(f'{reference!r} names nothing to export; wanted "script.py:pipeline", where pipeline is a Task, a Pipeline, a list of tasks, or a function that makes one')
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise JobError(f"there is no file {path}")
    sys.path.insert(0, os.path.dirname(path))
    stem = os.path.basename(path)[: -len(".py")].replace(".", "_")
    spec = importlib.util.spec_from_file_location(stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    setattr(module, "_daisy_submit_file", True)
    sys.modules[stem] = module
    run.importing = os.path.basename(path)
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise JobError(f'{path} has no {name}. What stands below if __name__ == "__main__": is not seen; move it above, or into a function')
    found = getattr(module, name)
    return found() if callable(found) and not hasattr(found, "task_id") else found


def export(reference: str, output: Optional[str], launcher: str, name: Optional[str]) -> None:
    stem = os.path.splitext(os.path.basename(reference.rpartition(":")[0]))[0]
    made = run.make(tasks_of(reference), launcher, name or stem, None, None, None, None, None, {})
    if output is None:
        if made.masks:
            raise JobError(f'task "{next(iter(made.masks))}" has a skip_mask, which is a file of its own: name the job file with -o FILE, and it is written beside it')
        sys.stdout.write(made.text({}))
        return
    if os.path.dirname(os.path.abspath(output)) != os.getcwd():
        raise JobError(f"{output} is in another folder: paths in a job file are relative to it, so change into its folder first")
    masks = {}
    for task, content in made.masks.items():
        masks[task] = f"{os.path.splitext(output)[0]}.{task}.npy"
        with open(masks[task], "wb") as f:
            f.write(content)
    with open(output, "w", encoding="utf-8") as text:
        text.write(made.text(masks))


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m daisy_submit")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("export", help="write tasks of a script as a job file", description="Writes tasks of a script as a job file for the present folder.")
    command.add_argument("reference", metavar="SCRIPT.py:NAME", help="a Task, a Pipeline, a list of tasks, or a function that makes one")
    command.add_argument("-o", "--output", metavar="FILE", help="write FILE, in the present folder (default: standard output)")
    command.add_argument("--launcher", default="local", help="local (default), serial or slurm")
    command.add_argument("--name", help="name of the run (default: that of the script)")
    given = parser.parse_args(arguments)
    try:
        export(given.reference, given.output, given.launcher, given.name)
    except DaisySubmitError as e:
        print(f"daisy_submit: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
