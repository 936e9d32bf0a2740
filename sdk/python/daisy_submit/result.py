"""Statistics of a run as objects. stats.json, as docs/stats.md of daisy describes it, has the same names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple


@dataclass(frozen=True)
class BlockSeconds:
    """How long successful attempts took; None where there was none."""

    mean: Optional[float]
    p50: Optional[float]
    p95: Optional[float]
    max: Optional[float]


@dataclass(frozen=True)
class Failure:
    """A block that failed for good."""

    task: str
    block: Optional[int]  # None where ids do not fit 64 bits
    index: Tuple[int, ...]
    attempts: int
    worker: Optional[str]
    node: Optional[str]
    message: str
    tail: Optional[str]  # the end of the output of its last attempt
    log: Optional[str]


@dataclass(frozen=True)
class TaskStats:
    """What became of the blocks of a task."""

    id: str
    state: str
    blocks: int
    success: int
    skipped: int
    failed: int
    orphaned: int
    abandoned: int
    processed: int
    retries: int
    timed_out: int
    lost: int
    returned: int
    out_of_memory: int
    workers: int
    max_concurrency: int
    wall_seconds: Optional[float]
    cpu_busy: Optional[float]
    peak_rss_bytes: Optional[int]
    gpu_util_pct: Optional[float]
    peak_gpu_mem_bytes: Optional[int]
    block_seconds: BlockSeconds
    failures: Tuple[Failure, ...]  # the first 100


@dataclass(frozen=True)
class WorkerStats:
    """What a worker has done for one task."""

    id: str
    task: str
    node: Optional[str]
    slots: int
    processed: int
    failed: int
    busy_seconds: float
    idle_seconds: float
    peak_rss_bytes: Optional[int]
    end: Optional[str]
    log: Optional[str]


@dataclass(frozen=True, repr=False)
class RunResult:
    """How a run went. It is true if every block has succeeded or was skipped."""

    id: str
    name: str
    state: str
    message: Optional[str]
    exit_status: int
    wall_seconds: float
    directory: Optional[str]
    tasks: Dict[str, TaskStats]
    workers: List[WorkerStats]
    stats: Mapping[str, Any]  # all of stats.json

    def __bool__(self) -> bool:
        return self.exit_status == 0

    def to_frame(self, rows: str = "tasks") -> Any:
        """A pandas frame of "tasks", "workers", "nodes" or "failures", in the columns of stats.json."""
        try:
            import pandas
        except ImportError as e:
            raise ImportError("to_frame() needs pandas (python -m pip install pandas); the same rows are in .stats") from e
        return pandas.json_normalize(self._rows(rows))

    def _rows(self, rows: str) -> List[Dict[str, Any]]:
        tasks: List[Dict[str, Any]] = self.stats["tasks"]
        if rows == "failures":
            return [{"task": t["id"], **f} for t in tasks for f in t["failures"]]
        if rows == "tasks":
            return [{k: v for k, v in t.items() if k != "failures"} for t in tasks]
        if rows in ("workers", "nodes"):
            return list(self.stats[rows])
        raise ValueError(f'rows is "tasks", "workers", "nodes" or "failures", not {rows!r}')

    def __repr__(self) -> str:
        columns = ("blocks", "success", "skipped", "failed", "orphaned", "abandoned")
        table = [("task",) + columns] + [(t.id,) + tuple(str(getattr(t, c)) for c in columns) for t in self.tasks.values()]
        widths = [max(len(row[i]) for row in table) for i in range(len(columns) + 1)]
        lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))) for row in table]
        return "\n".join([f"run {self.name}: {self.state} in {self.wall_seconds:.1f} s, {self.directory or 'without a run directory'}"] + lines)


def read(stats: Mapping[str, Any]) -> RunResult:
    """The objects of a stats.json."""
    run = stats["run"]
    return RunResult(
        id=run["id"],
        name=run["name"],
        state=run["state"],
        message=run["message"],
        exit_status=run["exit_status"],
        wall_seconds=run["wall_seconds"],
        directory=run["directory"],
        tasks={t["id"]: _task(t) for t in stats["tasks"]},
        workers=[_pick(WorkerStats, w) for w in stats["workers"]],
        stats=stats,
    )


def _task(t: Mapping[str, Any]) -> TaskStats:
    failures = tuple(_pick(Failure, {**f, "task": t["id"], "index": tuple(f["index"])}) for f in t["failures"])
    seconds: BlockSeconds = _pick(BlockSeconds, t["block_seconds"])
    stats: TaskStats = _pick(TaskStats, {**t, "block_seconds": seconds, "failures": failures})
    return stats


def _pick(kind: Any, values: Mapping[str, Any]) -> Any:
    """An object of the fields that it has: a later version may say more."""
    return kind(**{name: values[name] for name in kind.__dataclass_fields__})
