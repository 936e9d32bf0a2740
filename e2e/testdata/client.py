"""A script that talks to a run by daisy.Client itself. How it behaves is its argument."""

import sys
import time

import daisy

how = sys.argv[1]
client = daisy.Client()
done = 0
while True:
    with client.acquire_block() as block:
        if block is None:
            break
        if how == "raises":
            raise ValueError("größer: 失敗")
        if how in ("is killed", "hangs"):
            print("holds", block.block_id[1], flush=True)
            time.sleep(100)
        time.sleep(0.02)
        done += 1
print("done", done)
