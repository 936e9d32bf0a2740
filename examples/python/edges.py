"""The functions of edges.toml. Each is called with one block after another, in one process for each slot."""

import json
import os
import sys

SHAPE = (48, 64)

# Loaded once for each process, not for each block: a model, say, or here a picture of a disc.
PICTURE = [[255 if (r - 24) ** 2 + (c - 32) ** 2 < 15**2 else 0 for c in range(SHAPE[1])] for r in range(SHAPE[0])]


def gradient(block):
    """Counts the pixels of a block that differ from their neighbour above or to the left."""
    read = block.read.clip(SHAPE)  # context sticks out of the picture at its borders
    rows, columns = read.slices
    pixels = [row[columns] for row in PICTURE[rows]]

    edges = 0
    write = block.write.relative_to(read)  # where the block lies in the pixels that were read
    for r in range(write.offset[0], write.end[0]):
        for c in range(write.offset[1], write.end[1]):
            above = pixels[r - 1][c] if r > 0 else pixels[r][c]
            left = pixels[r][c - 1] if c > 0 else pixels[r][c]
            edges += above != pixels[r][c] or left != pixels[r][c]

    print(f"block {block.index}: {edges} edges")  # goes to the log of the worker
    save(f"out/edges-{block.index[0]}-{block.index[1]}.json", json.dumps(edges))


def summary(block):
    """Adds up what the blocks of gradient have found."""
    total = 0
    for r in range(0, 3):
        for c in range(0, 4):
            with open(f"out/edges-{r}-{c}.json") as f:
                total += json.load(f)
    if total == 0:
        raise ValueError("no edges: is the picture empty?")  # an exception fails the block, with this message
    save("out/summary.txt", f"{total} edges\n")


def save(path, text):
    """Writes a whole file or none: a block can be killed, and run again."""
    os.makedirs("out", exist_ok=True)
    with open(f"{path}.{os.getpid()}", "w") as f:
        f.write(text)
    os.replace(f.name, path)


if __name__ == "__main__":
    sys.exit("bin/daisy-submit run examples/python/edges.toml calls the functions in this file")
