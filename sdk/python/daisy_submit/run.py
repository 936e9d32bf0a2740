"""run_blockwise: tasks in, statistics out."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import tempfile
from typing import Any, Dict, List, Mapping, Optional

from . import arguments, program, result
from . import progress as showing
from .errors import BlocksFailed, DaisySubmitError, JobError, RunNotComplete
from .job import INSTEAD, Job, flatten, rows_of, run_name

# The script that "export" imports at the moment.
importing: Optional[str] = None


def run_blockwise(
    tasks: Any,
    launcher: str = "local",
    *,
    name: Optional[str] = None,
    directory: Any = None,
    tracking: Any = None,
    resources: Optional[Mapping[str, Any]] = None,
    settings: Optional[Mapping[str, Mapping[str, Any]]] = None,
    slurm: Optional[Mapping[str, Any]] = None,
    progress: showing.Choice = True,
    **run_keys: Any,
) -> result.RunResult:
    """Runs tasks to their end, as "daisy-submit run" does, with the present folder as that of the job file.

    tasks: a Task, a Pipeline, or a list of tasks, of daisy 2 or of this package. launcher: "local", "serial" or "slurm".
    directory: where run directories are made ("runs"). tracking: a folder that keeps done marks. resources: what all workers may use
    together, as {"cpu": 16, "memory": "64GiB"}. settings: further keys of [[task]] by task, "*" for all, as {"predict": {"requires": {"gpu": 1}}}.
    slurm: keys of [slurm], which hold with launcher="slurm". progress: True (bars), False (nothing), or a function that gets a Progress about once a second.
    run_keys: further keys of [run], such as grace="1m".

    Raises BlocksFailed if blocks failed for good, RunNotComplete if the run ended early for another reason, JobError (and its kind
    FunctionRefused) if something is wrong before it starts. KeyboardInterrupt ends the run in order; a second one at once.
    """
    if importing is not None:
        raise JobError(f'{importing} runs its tasks when it is imported: put what starts the run below if __name__ == "__main__":')
    if os.environ.get("DAISY_WORKER_ID"):
        raise JobError('run_blockwise was called by a worker, while it imports the function of a block or runs it: put what starts the run below if __name__ == "__main__":')
    job = make(tasks, launcher, name, directory, tracking, resources, settings, slurm, run_keys)
    show = showing.choose(progress)
    job.check_imports()
    return _run(job, show)


def job_file(
    tasks: Any,
    launcher: str = "local",
    *,
    name: Optional[str] = None,
    directory: Any = None,
    tracking: Any = None,
    resources: Optional[Mapping[str, Any]] = None,
    settings: Optional[Mapping[str, Mapping[str, Any]]] = None,
    slurm: Optional[Mapping[str, Any]] = None,
    **run_keys: Any,
) -> str:
    """The job file that run_blockwise would run, for the present folder. Nothing is started."""
    job = make(tasks, launcher, name, directory, tracking, resources, settings, slurm, run_keys)
    if job.masks:
        raise JobError(f'task "{next(iter(job.masks))}" has a skip_mask, which is a file of its own: python -m daisy_submit export -o FILE writes both')
    return job.text({})


def make(
    tasks: Any,
    launcher: str,
    name: Optional[str],
    directory: Any,
    tracking: Any,
    resources: Optional[Mapping[str, Any]],
    settings: Optional[Mapping[str, Mapping[str, Any]]],
    slurm: Optional[Mapping[str, Any]],
    run_keys: Mapping[str, Any],
) -> Job:
    for key in run_keys:
        if key in INSTEAD:
            raise JobError(f"{key} is an option of daisy's run_blockwise that is not here: {INSTEAD[key]}")
    given = [(n, d) for n, d in (("directory", directory), ("tracking", tracking)) if d is not None]
    arguments.check(
        [("launcher", launcher, isinstance(launcher, str), '"local", "serial" or "slurm"'), ("name", name, name is None or isinstance(name, str), "a string")]
        + [(n, d, arguments.is_path(d), "a path") for n, d in given]
        + arguments.table("resources", {} if resources is None else resources)
        + _settings({} if settings is None else settings)
        + arguments.table("slurm", {} if slurm is None else slurm, 'a dict of keys of [slurm], as {"partition": "gpu"}')
        + [row for k, v in run_keys.items() for row in arguments.values(k, v)]
        + [row for task in flatten(tasks)[0] for row in rows_of(task)]
    )
    run: Dict[str, Any] = {"name": run_name(name), "launcher": launcher}
    run.update((n, os.fspath(d)) for n, d in given)
    if resources is not None:
        run["resources"] = dict(resources)
    run.update(run_keys)
    return Job(tasks, run, settings or {}, slurm or {}, os.getcwd())


def _settings(settings: Any) -> List[arguments.Row]:
    if not isinstance(settings, Mapping):
        return [("settings", settings, False, 'a dict of dicts, as {"predict": {"priority": 2}}, by task or "*" for all')]
    return [row for task, keys in settings.items() for row in arguments.keys_of_task(f"settings[{task!r}]", keys)]


def _run(job: Job, show: showing.Silent) -> result.RunResult:
    files = contextlib.ExitStack()
    paths: List[str] = []

    def hand_over(content: bytes) -> str:
        """A path of these bytes for the program. The file has no name, so that nothing of it is left however either of the two ends."""
        try:
            file = files.enter_context(tempfile.TemporaryFile())
            file.write(content)
            file.seek(0)
        except OSError as e:
            raise DaisySubmitError(f"the job file cannot be written into the folder for temporary files: {e.strerror or e}; set the variable TMPDIR to one that has room and that you may write to") from e
        paths.append(f"/dev/fd/{file.fileno()}")
        return paths[-1]

    stats: List[Mapping[str, Any]] = []
    directory: List[str] = []
    held: Optional[List[str]] = []  # what was said before the run began: where it does not begin, the exception says it

    def out(line: str) -> None:
        nonlocal held
        event = json.loads(line)
        # The run has begun, and has in its directory what it needs of the files.
        files.close()
        for said in held or ():
            show.notice(said)
        held = None
        if event["event"] == "progress":
            show.update(showing.read(event))
        elif event["event"] == "notice":
            directory.extend(re.findall(r"\Arun directory: (.*)", event["text"]))
            show.notice(event["text"])
        elif event["event"] == "end":
            stats.append(event["stats"])
            show.end(showing.at_end(event["stats"]))

    def err(line: str) -> None:
        if held is not None:
            held.append(line)
        elif not line.startswith("next: "):  # the exception says it, too
            show.notice(line)

    with files:
        masks = {task: hand_over(content) for task, content in job.masks.items()}
        path = hand_over(job.text(masks).encode())
        ended = program.run(["run", "--json", "--with-stdin", path], job.folder, out, err, [int(os.path.basename(p)) for p in paths])
    if not stats:
        if ended.interrupted:
            raise KeyboardInterrupt
        if ended.status < 0:
            following = [f"next: {shlex.quote(program.find())} run --resume {shlex.quote(at)}   # what is left" for at in directory[:1]]
            raise DaisySubmitError("\n".join([f"daisy-submit was ended by signal {-ended.status}, before the run had", *ended.said, *following]))
        # Where the line stands in a file that nobody sees says nothing.
        text = re.sub(rf"({'|'.join(paths)})(:\d+)?: ", "", "\n".join(ended.said)) or f"it ended with status {ended.status} and without a word"
        raise JobError(text) if ended.status == 2 else DaisySubmitError(text)
    how = result.read(stats[-1])
    following = [line for line in ended.said if line.startswith("next: ")]
    if ended.interrupted:
        for line in following:
            show.notice(line)
        raise KeyboardInterrupt
    if ended.status == 0:
        return how
    if any(task.failed for task in how.tasks.values()):
        raise BlocksFailed(how, following)
    told = how.message or " ".join(line for line in ended.said if line not in following)
    raise RunNotComplete("\n".join([f"the run ended before all blocks were done ({how.state}): {told}", repr(how), *following]), how)

