"""The functions of the pipeline, each called with one block after another. No block holds the whole volume, yet the result is, byte for
byte, that of the whole volume at once."""

import functools
import itertools
import os

import daisy
import numpy as np
import zarr

SOURCE = "../nuclei/data/nuclei.v2.zarr/0"
SMOOTHED = "out/smoothed.zarr"
LABELS_BLOCKS = "out/labels_blocks.zarr"
LABELS = "out/labels.zarr"
NUMBERS = "out/numbers.npy"

# A Gaussian of sigma 2 in whole numbers: sums are exact, so that a voxel does not depend on how the volume was cut.
WEIGHTS = [1, 3, 11, 35, 83, 155, 226, 256, 226, 155, 83, 35, 11, 3, 1]
CONTEXT = 7

# Otsu's threshold of the volume.
THRESHOLD = 40


@functools.lru_cache(None)
def array(path):
    """Opened once for each process."""
    return zarr.open_array(path, mode="r" if path == SOURCE else "r+")


def smooth(block):
    """A Gaussian. Beyond the border of the volume the nearest voxel counts."""
    volume = array(SOURCE)
    read = block.read_roi.intersect(whole())
    outside = [(i - b, e - j) for b, i, j, e in zip(block.read_roi.begin, read.begin, read.end, block.read_roi.end)]
    sums = np.pad(volume[read.to_slices()].astype(np.int64), outside, mode="edge")
    for axis in range(3):
        n = sums.shape[axis] - len(WEIGHTS) + 1
        sums = sum(w * sums.take(range(k, k + n), axis) for k, w in enumerate(WEIGHTS))
    total = sum(WEIGHTS) ** 3
    array(SMOOTHED)[block.write_roi.to_slices()] = (2 * sums + total) // (2 * total)


def label(block):
    """The 6-connected components inside the block. The id of one is the place of its first voxel in the volume, so that ids of
    different blocks never clash."""
    where = block.write_roi.to_slices()
    bright = array(SMOOTHED)[where] > THRESHOLD
    places = np.ravel_multi_index(np.ix_(*(range(s.start, s.stop) for s in where)), array(SMOOTHED).shape)
    nothing = np.iinfo(np.int64).max
    ids = np.where(bright, places + 1, nothing)
    while True:  # the smallest id of a neighbour spreads until nothing changes
        before = ids.copy()
        for axis in range(3):
            low, high = (tuple(s if a == axis else slice(None) for a in range(3)) for s in (slice(None, -1), slice(1, None)))
            ids[high] = np.where(bright[high], np.minimum(ids[high], ids[low]), nothing)
            ids[low] = np.where(bright[low], np.minimum(ids[low], ids[high]), nothing)
        if np.array_equal(ids, before):
            break
    ids[~bright] = 0
    array(LABELS_BLOCKS)[where] = ids


def stitch(block):
    """Joins the ids that touch across borders between blocks, and numbers what comes out: 1, 2, ... by first voxel."""
    labels = array(LABELS_BLOCKS)
    root = {}

    def find(i):
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for begin in itertools.product(*(range(0, n, c) for n, c in zip(labels.shape, labels.chunks))):
        chunk = labels[tuple(slice(b, b + c) for b, c in zip(begin, labels.chunks))]
        root.update((int(i), int(i)) for i in np.unique(chunk) if i)

    for axis in range(3):  # two layers of voxels at a time
        for plane in range(labels.chunks[axis], labels.shape[axis], labels.chunks[axis]):
            layers = labels[tuple(slice(plane - 1, plane + 1) if a == axis else slice(None) for a in range(3))]
            below, above = (layers.take(k, axis).ravel() for k in (0, 1))
            touching = (below > 0) & (above > 0)
            for a, b in np.unique(np.stack([below[touching], above[touching]], 1), axis=0):
                a, b = find(int(a)), find(int(b))
                root[max(a, b)] = min(a, b)

    ids = np.array(sorted(root), np.int64)
    firsts, numbers = np.unique([find(int(i)) for i in ids], return_inverse=True)
    temporary = f"{NUMBERS}.{os.getpid()}"
    with open(temporary, "wb") as f:
        np.save(f, np.stack([ids, numbers + 1]))
    os.replace(temporary, NUMBERS)


def relabel(block):
    """Replaces each id by its number."""
    ids, numbers = np.load(NUMBERS)
    where = block.write_roi.to_slices()
    labels = array(LABELS_BLOCKS)[where]
    if not np.isin(labels[labels > 0], ids).all():
        raise ValueError(f"{NUMBERS} lacks ids of this block: it is of another run; start over with pipeline.py prepare")
    found = np.zeros(labels.shape, np.int32)
    found[labels > 0] = numbers[np.searchsorted(ids, labels[labels > 0])]
    array(LABELS)[where] = found


def whole():
    return daisy.Roi((0, 0, 0), array(SOURCE).shape)
