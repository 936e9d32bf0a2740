"""A task over arrays of Zarr that daisy 2.0.0 runs ("blocks.py run"), or our workers, which call write(). task.json says which blocks.

Each block writes what it reads: the sum of that, plus the voxel. ran gets a line with its id.
"""

import json
import os
import sys
import time

import numpy as np
import zarr

with open("task.json") as f:
    TASK = json.load(f)
TOTAL = TASK["total"]


def process(block_id, read, write):
    """read and write are [offset, shape] in the world's coordinates; voxel 0 of the arrays is the begin of the total region."""
    raw, out = zarr.open_array("raw.zarr", mode="r"), zarr.open_array("out.zarr", mode="r+")
    with open("ran", "a") as f:
        f.write(f"{block_id}\n")
    if TASK.get("hold", -1) == block_id and not os.path.exists("mended"):
        open("held", "w").close()
        time.sleep(1000)
    if block_id in TASK["fail"] and not os.path.exists("mended"):
        raise ValueError("this block fails")
    out[inside(write)] = raw[inside(write)] + np.sum(raw[inside(read)])


def inside(roi):
    """Where a region is in the arrays, without what sticks out."""
    begin = np.subtract(roi[0], TOTAL[0])
    end = np.minimum(begin + roi[1], TOTAL[1])
    return tuple(slice(int(b), int(e)) for b, e in zip(np.maximum(begin, 0), end))


def write(block):
    process(block.block, (block.read.offset, block.read.shape), (block.write.offset, block.write.shape))


def prepare():
    rng = np.random.default_rng(1)
    raw = rng.integers(1, 1000, TOTAL[1])
    zarr.create_array("raw.zarr", shape=raw.shape, chunks=raw.shape, dtype="i8")[:] = raw
    zarr.create_array("out.zarr", shape=raw.shape, chunks=(1,) * raw.ndim, dtype="i8")
    if TASK.get("mask"):
        np.save("mask.npy", np.array(TASK["mask"], dtype=bool))


def run():
    import daisy.v2 as daisy

    def roi(r):
        return daisy.Roi(r[0], r[1])

    def block_function(block):
        try:
            process(block.block_id[1], *((list(r.offset), list(r.shape)) for r in (block.read_roi, block.write_roi)))
        except ValueError:
            block.status = daisy.BlockStatus.FAILED

    task = daisy.Task(
        "work", roi(TASK["total"]), roi(TASK["read"]), roi(TASK["write"]), block_function,
        fit=TASK["fit"], read_write_conflict=TASK["conflict"], max_retries=1, tracking_path="tracking/work",
        resource_tracking=TASK["resources"], skip_mask=np.load("mask.npy") if TASK.get("mask") else None,
    )
    state = daisy.run_blockwise(task, multiprocessing=False, progress=False, summary=False, return_states=True)["work"]
    names = ("total_block_count", "completed_count", "skipped_count", "failed_count", "orphaned_count")
    print(json.dumps({n.removesuffix("_count"): getattr(state, n) for n in names}))


def arrays():
    """All arrays of the group, as zarr-python reads them."""
    group = zarr.open_group("tracking/work", mode="r")
    found = {name: {"type": str(a.dtype), "fill": float(a.fill_value), "shape": a.shape, "sum": float(np.nansum(a[:])), "nan": int(np.isnan(a[:]).sum())} for name, a in group.arrays()}
    print(json.dumps({"hash": group.attrs["daisy_task_hash"], "arrays": found, "done": np.asarray(group["done"]).ravel().tolist(), "failures": np.asarray(group["failures"]).ravel().tolist()}))


def result():
    print(json.dumps(np.asarray(zarr.open_array("out.zarr", mode="r")).ravel().tolist()))


if __name__ == "__main__":
    {"prepare": prepare, "run": run, "arrays": arrays, "result": result}[sys.argv[1]]()
