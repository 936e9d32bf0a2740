"""The pipeline of examples/nuclei for daisy 2.

    pipeline.py prepare          makes the output arrays, empty
    pipeline.py run              runs the tasks with daisy; its workers call the functions of steps.py
    pipeline.py run --scripts    the same, with workers that are processes of worker.py, as on a cluster
    pipeline.py submit [slurm]   runs them with daisy-submit in place of daisy
    pipeline.py verify           compares what is in the arrays with the reference
"""

import hashlib
import json
import shutil
import subprocess
import sys

import daisy
import numpy as np
import zarr

from steps import CONTEXT, LABELS, LABELS_BLOCKS, SMOOTHED, SOURCE, array, label, relabel, smooth, stitch, whole


def script():
    """A worker that is a program of its own; on a cluster it would be started with srun."""
    subprocess.run([sys.executable, "worker.py"], check=True)


def pipeline(scripts=False):
    """The tasks: smooth + label + stitch + relabel, each after the one before."""

    def task(function, shape=(32, 32, 32), context=0, max_workers=2):
        write = daisy.Roi((0, 0, 0), shape)
        return daisy.Task(
            function.__name__,
            total_roi=whole().grow(context, context),
            read_roi=write.grow(context, context),
            write_roi=write,
            process_function=script if scripts else function,
            read_write_conflict=False,  # blocks read one array and write another
            fit="shrink",  # 60 is no multiple of 32
            max_workers=max_workers,
            requires={"cpu": 1},
        )

    one_block = array(SOURCE).shape  # waits for all blocks of label
    return task(smooth, context=CONTEXT) + task(label) + task(stitch, one_block, max_workers=1) + task(relabel)


def prepare():
    shutil.rmtree("out", ignore_errors=True)
    source = array(SOURCE)
    for path, dtype in ((SMOOTHED, "u1"), (LABELS_BLOCKS, "i8"), (LABELS, "i4")):
        zarr.create_array(path, shape=source.shape, chunks=source.chunks, dtype=dtype)
        print(path)


def run(*options):
    daisy.logging.set_log_basedir("out/daisy_logs")
    states = daisy.run_blockwise(
        pipeline(scripts="--scripts" in options), resources={"cpu": 2}, progress=False, summary=False, return_states=True, host="127.0.0.1"
    )
    counts = {name: (s.total_block_count, s.completed_count, s.failed_count, s.orphaned_count) for name, s in states.items()}
    return report(counts)


def submit(launcher="local"):
    import daisy_submit  # sdk/python

    try:
        result = daisy_submit.run_blockwise(pipeline(), launcher, resources={"cpu": 2}, directory="out/runs", progress=False)
    except daisy_submit.BlocksFailed as e:
        result = e.result
    return report({name: (t.blocks, t.success + t.skipped, t.failed, t.orphaned) for name, t in result.tasks.items()})


def report(counts):
    for name in ("smooth", "label", "stitch", "relabel"):
        blocks, done, failed, orphaned = counts[name]
        print(f"{name}: {done} of {blocks} blocks done, {failed} failed, {orphaned} orphaned")
    return any(done < blocks for blocks, done, _, _ in counts.values())


def verify():
    with open("../nuclei/reference.json") as f:
        reference = json.load(f)
    wrong = False
    for path, name in ((SMOOTHED, "int_gauss"), (LABELS, "labels_by_first_voxel")):
        want = reference[name]
        voxels = np.ascontiguousarray(array(path)[:], dtype=want["dtype"])
        same = hashlib.sha256(voxels.tobytes()).hexdigest() == want["sha256"]
        print(path, "as the reference" if same else "DIFFERS from the reference")
        wrong = wrong or not same
    print(len(np.unique(array(LABELS)[:])) - 1, "components")
    return wrong


if __name__ == "__main__":
    commands = {"prepare": prepare, "run": run, "submit": submit, "verify": verify}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(f"usage, in the folder of this file:\n{__doc__.partition(chr(10) * 2)[2]}")
    sys.exit(commands[sys.argv[1]](*sys.argv[2:]))
