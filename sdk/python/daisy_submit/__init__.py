"""Runs of daisy-submit from Python: blocks over a volume that is too large for one process.

    import daisy_submit
    from daisy_submit import Roi, Task

    def predict(block):
        print(block.read_roi, block.write_roi)

    if __name__ == "__main__":
        task = Task("predict", Roi((0, 0), (1000, 1000)), Roi((0, 0), (110, 110)), Roi((5, 5), (100, 100)), predict)
        result = daisy_submit.run_blockwise(task)

Tasks and pipelines of daisy 2 are taken as they are. Workers import functions by their names; nothing is pickled.
"""

from .block import Block, BlockStatus
from .errors import BlocksFailed, DaisySubmitError, FunctionRefused, JobError, ProgramMissing, RunNotComplete
from .geometry import Coordinate, Roi
from .progress import Progress, TaskProgress
from .result import BlockSeconds, Failure, RunResult, TaskStats, WorkerStats
from .run import job_file, run_blockwise
from .task import Pipeline, Task

__version__ = "0.1.0"

__all__ = [
    "Block",
    "BlockSeconds",
    "BlockStatus",
    "BlocksFailed",
    "Coordinate",
    "DaisySubmitError",
    "Failure",
    "FunctionRefused",
    "JobError",
    "Pipeline",
    "ProgramMissing",
    "Progress",
    "Roi",
    "RunNotComplete",
    "RunResult",
    "Task",
    "TaskProgress",
    "TaskStats",
    "WorkerStats",
    "job_file",
    "run_blockwise",
]
