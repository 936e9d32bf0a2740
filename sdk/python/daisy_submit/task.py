"""Tasks and pipelines of the shape that daisy 2 has, for those who have not installed it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from .geometry import Roi


def _copy(kind: Callable[..., Any], given: Any) -> Any:
    """What cannot be copied stays: run_blockwise says what is wrong with it, together with all else."""
    try:
        return kind(given or ())
    except (TypeError, ValueError):
        return given


class Task:
    """Blocks over a region, and the function that runs one.

    total_roi is what may be read in all; read_roi and write_roi are the two regions of one block, wherever it lies. process_function
    takes the block, or nothing: then it is a worker that asks for blocks itself, with daisy.Client. check_function takes the block and
    says whether it is done already. timeout is in seconds, 0 and infinity = none, None = 600. requires is what one block needs, as {"cpu": 4,
    "memory": "16GiB", "gpu": 1}. skip_mask is an array with the shape of the grid of blocks. settings are further keys of [[task]] of a job
    file, such as {"output": "brain.zarr/labels"}.
    """

    def __init__(
        self,
        task_id: str,
        total_roi: Roi,
        read_roi: Roi,
        write_roi: Roi,
        process_function: Callable[..., Any],
        check_function: Optional[Callable[..., Any]] = None,
        read_write_conflict: bool = True,
        fit: str = "valid",
        max_workers: Optional[int] = None,
        max_retries: int = 2,
        timeout: Optional[float] = None,
        *,
        num_workers: Optional[int] = None,
        upstream_tasks: Iterable[Task] = (),
        requires: Optional[Mapping[str, Any]] = None,
        max_worker_restarts: int = 10,
        skip_mask: Any = None,
        tracking_path: Any = None,
        resource_tracking: bool = False,
        settings: Optional[Mapping[str, Any]] = None,
    ) -> None:
        if max_workers is not None and num_workers is not None:
            raise TypeError("max_workers and num_workers are the same: give one of them")
        self.task_id, self.total_roi, self.read_roi, self.write_roi = task_id, total_roi, read_roi, write_roi
        self.process_function, self.check_function = process_function, check_function
        self.read_write_conflict, self.fit = read_write_conflict, fit
        given = num_workers if max_workers is None else max_workers
        self.max_workers = 1 if given is None else given
        self.max_retries, self.max_worker_restarts = max_retries, max_worker_restarts
        self.timeout_secs: float = 600.0 if timeout is None else timeout
        self.upstream_tasks: List[Task] = _copy(list, upstream_tasks)
        self.requires: Dict[str, Any] = _copy(dict, requires)
        self.skip_mask, self.done_marker_path, self.resource_tracking = skip_mask, tracking_path, resource_tracking
        self.settings: Dict[str, Any] = _copy(dict, settings)

    def __add__(self, other: Union[Task, Pipeline]) -> Pipeline:
        return Pipeline([self]) + other

    def __or__(self, other: Union[Task, Pipeline]) -> Pipeline:
        return Pipeline([self]) | other

    def __repr__(self) -> str:
        return f"<task {self.task_id}>"


class Pipeline:
    """Tasks and which of them come after which. a + b: b after a; a | b: beside each other."""

    def __init__(self, tasks: Iterable[Task] = (), edges: Iterable[Tuple[Task, Task]] = ()) -> None:
        self.tasks: List[Task] = []
        self.edges: List[Tuple[Task, Task]] = []
        for task in tasks:
            self._take(task)
        for upstream, downstream in edges:
            self._take(upstream)
            self._take(downstream)
            self.edges.append((upstream, downstream))

    def _take(self, task: Task) -> None:
        if not any(task is t for t in self.tasks):
            self.tasks.append(task)

    @property
    def sources(self) -> List[Task]:
        """Tasks that come after none."""
        return [t for t in self.tasks if not any(t is down for _, down in self.edges)]

    @property
    def outputs(self) -> List[Task]:
        """Tasks that none comes after."""
        return [t for t in self.tasks if not any(t is up for up, _ in self.edges)]

    def __add__(self, other: Union[Task, Pipeline]) -> Pipeline:
        then = Pipeline([other]) if isinstance(other, Task) else other
        between = [(up, down) for up in self.outputs for down in then.sources]
        return Pipeline(self.tasks + then.tasks, self.edges + then.edges + between)

    def __or__(self, other: Union[Task, Pipeline]) -> Pipeline:
        beside = Pipeline([other]) if isinstance(other, Task) else other
        return Pipeline(self.tasks + beside.tasks, self.edges + beside.edges)

    def __repr__(self) -> str:
        return f"<pipeline of {', '.join(t.task_id for t in self.tasks)}>"
