"""Blocks that behave badly in all kinds of ways, each way a task. "behave.py daisy" is a worker of daisy 2 as people write them, "behave.py
nested" one that starts another, "behave.py stream" a stream program with the same blocks."""
import json, os, signal, subprocess, sys, time


def first(name):
    """Whether this is the first time, over all processes."""
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def work(task, index):
    once = index == 1 and first(task + ".once")
    if task in ("raises", "catches", "nested") and (index == 0 or once):
        raise ValueError("größer: 失敗\nund noch eine Zeile")
    if task == "dies" and once:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "exits" and once:
        os._exit(3)
    if task == "hangs" and once:
        time.sleep(600)
    if task == "kills" and once:
        os.kill(os.getppid(), signal.SIGKILL)  # the worker
        time.sleep(600)
    if task == "stops":  # and goes on
        subprocess.run(["sh", "-c", "kill -STOP $0; sleep 0.1; kill -CONT $0", str(os.getpid())], check=True)
    if task == "prints":
        for _ in range(2000):
            print(task, index, "x" * 500)


def daisy_worker():
    import daisy

    client = daisy.Client()
    while True:
        try:
            with client.acquire_block() as block:
                if block is None:
                    return
                index = block.write_roi.offset[0]
                if client.task_id == "says" and index == 0:
                    block.status = daisy.BlockStatus.FAILED
                work(client.task_id, index)
        except ValueError:
            if client.task_id != "catches":
                raise


def stream():
    answers = os.fdopen(int(os.environ["DAISY_ANSWER_FD"]), "w", buffering=1)
    for line in sys.stdin:
        block = json.loads(line)
        index = block["write"]["offset"][0]
        answer = {"lease": block["lease"], "ok": not (block["task"] == "says" and index == 0)}
        try:
            work(block["task"], index)
        except ValueError as e:
            answer.update(ok=False, error=str(e))
        answers.write(json.dumps(answer) + "\n")


if sys.argv[1] == "nested":
    sys.exit(subprocess.run([sys.executable, sys.argv[0], "daisy"]).returncode)
{"daisy": daisy_worker, "stream": stream}[sys.argv[1]]()
