"""Runs the pipeline in each way, by turns, three times each, and prints the medians: how long the command took, and the CPU time of it and of
all that it started. The second depends less on what else the machine does."""

import os
import resource
import statistics
import subprocess
import sys
import time

PROGRAM = os.environ.setdefault("DAISY_SUBMIT", os.path.abspath("../../bin/daisy-submit"))
os.environ.setdefault("PYTHONPATH", os.path.abspath("../../sdk/python"))

WAYS = {
    "daisy, functions": [sys.executable, "pipeline.py", "run"],
    "daisy, worker scripts": [sys.executable, "pipeline.py", "run", "--scripts"],
    "daisy-submit, the same worker scripts": [PROGRAM, "run", "nuclei.toml"],
    "daisy_submit, the same functions": [sys.executable, "pipeline.py", "submit"],
}


def quietly(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")


def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


seconds = {way: [] for way in WAYS}
for _ in range(3):
    for way, command in WAYS.items():
        quietly([sys.executable, "pipeline.py", "prepare"])
        began, used = time.monotonic(), cpu()
        quietly(command)
        seconds[way].append((time.monotonic() - began, cpu() - used))
        quietly([sys.executable, "pipeline.py", "verify"])

medians = {way: [statistics.median(column) for column in zip(*took)] for way, took in seconds.items()}
first = medians["daisy, functions"]
print("| way | wall time | ratio | CPU time | ratio |\n|---|---|---|---|---|")
for way, (wall, used) in medians.items():
    print(f"| {way} | {wall:.1f} s | {wall / first[0]:.2f} | {used:.1f} s | {used / first[1]:.2f} |")
