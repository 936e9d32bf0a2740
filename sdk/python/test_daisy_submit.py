"""python3 -m unittest test_daisy_submit, in this folder, with daisy-submit in DAISY_SUBMIT or PATH."""

import contextlib
import functools
import glob
import io
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import daisy_submit
from daisy_submit import Coordinate, Pipeline, Roi, Task, progress, program, reference, result, toml

try:
    import daisy
except ImportError:
    daisy = None

HERE = os.path.dirname(os.path.dirname(os.path.abspath(daisy_submit.__file__)))
GOLDEN = [p for p in (os.path.join(os.path.dirname(os.path.abspath(__file__)), *at) for at in (["blocks.jsonl"], ["..", "..", "scheduler", "testdata", "golden", "blocks.jsonl"])) if os.path.exists(p)]

HEAD = """
import os, sys, time
import daisy_submit
from daisy_submit import Block, BlockStatus, Roi, Task, run_blockwise

def line(name, function, blocks=4, **keys):
    return Task(name, Roi((0,), (10 * blocks,)), Roi((0,), (10,)), Roi((0,), (10,)), function, read_write_conflict=False, max_workers=2, **keys)

def note(block):
    assert isinstance(block, Block) and block.status == BlockStatus.PROCESSING and block.block_id[0] == block.task_id
    with open(f"{block.task_id}-{block.block_id[1]}", "w") as f:
        f.write(f"{block.read_roi.offset} {block.write_roi.shape}")
"""
MAIN = '\nif __name__ == "__main__":\n'


class Folder(unittest.TestCase):
    """A folder of its own, with scripts that are run in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name)) as f:
            return f.read()

    def start(self, *arguments, **keys):
        environment = {**os.environ, "PYTHONPATH": HERE, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.update(keys.pop("env", {}))
        return subprocess.Popen([sys.executable, *arguments], cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keys)

    def python(self, *arguments, **keys):
        """Exit status and both outputs of a Python process."""
        with self.start(*arguments, **keys) as p:
            out, err = p.communicate()
            return p.returncode, out, err

    def script(self, text, *arguments, **keys):
        return self.python(self.write("script.py", HEAD + text), *arguments, **keys)

    def succeeds(self, text, *arguments, **keys):
        status, out, err = self.script(text, *arguments, **keys)
        self.assertEqual(status, 0, out + err)
        return out

    def refused(self, text, *words):
        """The script is refused with these words, before anything has started or was left."""
        status, out, err = self.script(text)
        self.assertEqual(status, 1, out + err)
        for word in words:
            self.assertIn(word, err)
        self.assertEqual(sorted(os.listdir(self.folder)), ["script.py"])

    def only_left(self, *names):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(names))


class Runs(Folder):
    def test_functions_of_a_script_run_and_the_counts_are_objects(self):
        out = self.succeeds(
            "def count(block): print(len([n for n in os.listdir('.') if n.startswith('a-')]))\n"
            + MAIN
            + """
    a, b = line("a", note), line("b", count)
    result = run_blockwise(a + b, progress=False)
    assert result and result.exit_status == 0 and result.state == "done" and result.name == "script", result
    a = result.tasks["a"]
    assert (a.blocks, a.success, a.processed, a.retries, a.failures) == (4, 4, 4, 0, ()) and a.block_seconds.max > 0
    assert sum(w.processed for w in result.workers) == 8 and result.stats["run"]["id"] == result.id
    assert result.to_frame.__doc__ and [t["id"] for t in result._rows("tasks")] == ["a", "b"]
    print(result)
"""
        )
        self.assertEqual(self.read("a-3"), "(30,) (10,)")
        self.assertRegex(out, r"(?s)run script: done in .* s, .*/runs/script-.*\na +4 +4 +0 +0 +0 +0\nb +4 +4")
        self.only_left("a-0", "a-1", "a-2", "a-3", "runs", "script.py")

    def test_the_last_that_is_shown_is_the_end(self):
        status, out, err = self.script(MAIN + "    run_blockwise(line('a', note))\n    run_blockwise(line('b', note), progress=lambda p: print(p.state, p.tasks[0].ended))\n")
        self.assertEqual((status, out.splitlines()[-1]), (0, "done 4"), err)
        self.assertEqual(err.splitlines()[-1], "a  4/4  100%")

    def test_warnings_are_shown(self):
        status, _, err = self.script(MAIN + "    run_blockwise(line('a', note), resources={'cpu': 1000})\n")
        self.assertEqual(status, 0, err)
        self.assertRegex(err, "daisy-submit: warning: .*1000")

    def test_blocks_that_fail_are_in_the_exception_with_what_they_said(self):
        out = self.succeeds(
            """
def work(block):
    if block.block_id[1] == 2:
        print("about to fail")
        raise ValueError("no good: ä")
"""
            + MAIN
            + """
    try:
        run_blockwise(line("a", work, max_retries=1) + line("b", note), progress=False)
    except daisy_submit.BlocksFailed as e:
        failure, = e.failures
        assert (failure.task, failure.block, failure.index, failure.attempts) == ("a", 2, (2,), 2), failure
        assert not e.result and e.result.tasks["a"].success == 3 and e.result.tasks["b"].orphaned == 1
        print(e)
"""
        )
        for word in ("a: of 4 blocks 1 failed\n", "b: of 4 blocks 1 orphaned\n", "a block 2 failed after 2 attempts: ValueError: no good: ä\n", "    about to fail\n", "script.py", "daisy-submit retry "):
            self.assertIn(word, out)
        self.assertNotIn("<daisy>", out)

    def test_a_run_that_gives_up_after_some_failures_has_their_errors(self):
        out = self.succeeds(
            "def work(block): raise ValueError('no good')\n"
            + MAIN
            + """
    try:
        run_blockwise(line("a", work, blocks=40, max_retries=0), progress=False, max_failures=1)
    except daisy_submit.BlocksFailed as e:
        assert e.result.state == "stopped" and e.result.tasks["a"].abandoned, e.result
        print(e)
"""
        )
        self.assertIn("max_failures", out.splitlines()[0])
        self.assertIn("ValueError: no good", out)

    def test_a_function_that_sets_the_status_to_failed_has_failed(self):
        out = self.succeeds(
            "def work(block): block.status = BlockStatus.FAILED\n"
            + MAIN
            + """
    try:
        run_blockwise(line("a", work, blocks=1, max_retries=0), progress=False)
    except daisy_submit.BlocksFailed as e:
        print(e.failures[0].message)
"""
        )
        self.assertEqual(out, "RuntimeError: the function has set block.status to FAILED\n")

    def test_a_check_function_a_mask_and_marks_skip_blocks(self):
        text = (
            "def done(block): return block.block_id[1] == 1\n"
            + MAIN
            + """
    result = run_blockwise(line("a", note, check_function=done, skip_mask=bytes([1, 0, 0, 0])), progress=False, tracking="marks")
    print(result.tasks["a"].success, result.tasks["a"].skipped)
"""
        )
        self.assertEqual(self.succeeds(text), "2 2\n")
        self.assertEqual(self.succeeds(text), "0 4\n")
        self.only_left("a-2", "a-3", "marks", "runs", "script.py")

    def test_what_the_function_needs_is_imported_from_where_the_script_has_it(self):
        os.makedirs(self.path("lib/inner"))
        self.write("lib/inner/steps.py", "import beside\ndef work(block): beside.note(block)\n")
        self.write("lib/beside.py", "def note(block): open(f'done-{block.block_id[1]}', 'w').close()\n")
        self.succeeds(
            "sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'lib'))\nfrom inner import steps\n"
            + MAIN
            + "    run_blockwise(line('a', steps.work, blocks=1), progress=False)\n"
        )
        self.only_left("done-0", "lib", "runs", "script.py")

    def test_keys_of_the_job_file_can_be_set(self):
        self.succeeds(
            "def work(block): assert os.environ['MINE'] == 'yes'\n"
            + MAIN
            + """
    task = line("a", work, blocks=1, requires={"cpu": 1, "token": 1}, settings={"env": {"MINE": "no"}})
    result = run_blockwise(task, "serial", name="mine", directory="here", grace="1s", resources={"cpu": 1, "token": 1}, settings={"a": {"env": {"MINE": "yes"}}}, progress=False)
    assert result.stats["run"]["launcher"] == "serial" and os.path.dirname(result.directory) == os.path.abspath("here") and result.name == "mine"
"""
        )

    def test_two_runs_at_once(self):
        self.succeeds(
            MAIN
            + """
    import threading
    results = []
    def go(name):
        results.append(run_blockwise(line(name, note), progress=False))
    threads = [threading.Thread(target=go, args=(n,)) for n in "ab"]
    for t in threads: t.start()
    for t in threads: t.join()
    assert len({r.directory for r in results}) == 2 and all(results)
"""
        )
        self.only_left("runs", "script.py", *(f"{t}-{i}" for t in "ab" for i in range(4)))

    def test_what_is_left_running_at_the_end_holds_nothing_up(self):
        out = self.succeeds(MAIN + """
    run_blockwise(line("a", note), progress=False, on_end={"command": ["sh", "-c", "sleep 1000 & echo $! > pid"]})
    os.kill(int(open("pid").read()), 9)
""")  # fmt: skip
        self.assertEqual(out, "")

    def test_a_run_with_a_mask_can_be_gone_on_with(self):
        self.succeeds(
            "def work(block): assert os.path.exists('go')\n"
            + MAIN
            + """
    try:
        run_blockwise(line("a", work, max_retries=0, skip_mask=bytes([0, 1, 0, 0])), progress=False)
    except daisy_submit.BlocksFailed:
        pass
"""
        )
        self.write("go", "")
        again = subprocess.run([program.find(), "retry", "runs/latest", "--json"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(again.returncode, 0, again.stderr)
        task = json.loads(again.stdout.splitlines()[-1])["stats"]["tasks"][0]
        self.assertEqual((task["success"], task["skipped_why"]["mask"]), (3, 1))

    def test_a_run_that_was_stopped_by_another_is_no_failure_of_blocks(self):
        out = self.succeeds(
            "def work(block): time.sleep(1000)\n"
            + MAIN
            + """
    import subprocess
    def stop(p):
        if p.tasks[0].leased:
            subprocess.run([daisy_submit.program.find(), "cancel", "--now"], check=True, stdout=subprocess.DEVNULL)
    try:
        run_blockwise(line("a", work), progress=stop)
    except daisy_submit.BlocksFailed:
        raise
    except daisy_submit.RunNotComplete as e:
        assert e.result.tasks["a"].abandoned == 4 and e.result.state == "stopped"
        print(e)
"""
        )
        self.assertIn("the run ended before all blocks were done (stopped)", out)


WAITS = (
    """
def work(block):
    with open("began", "w") as f: f.write(f"{os.getpid()}\\n")
    while not os.path.exists("go"): time.sleep(0.01)
"""
    + MAIN
    + """
    run_blockwise(line("a", work), grace=sys.argv[1])
"""
)

# The same in a process that has forked since the run began.
FORKS = WAITS.replace("grace=", "progress=fork, grace=").replace(
    "def work(block):",
    """
def fork(p):
    if not os.path.exists("child"):
        os.mkfifo("ever")
        pid = os.fork()
        if pid == 0:
            os.closerange(1, 3)
            open("ever")
        with open("child.new", "w") as f: f.write(str(pid))
        os.rename("child.new", "child")

def work(block):
    while not os.path.exists("child"): time.sleep(0.01)""",
)


class Ends(Folder):
    """However Python ends, the run ends with it."""

    def run_then(self, grace, end, text=WAITS):
        """Exit status, standard error, state of the run and blocks that succeeded, of a script that was ended while two blocks ran."""
        os.mkfifo(self.path("began"))
        with self.start(self.write("script.py", HEAD + text), grace, start_new_session=True) as p:
            self.addCleanup(p.kill)
            pids = []
            while len(pids) < 2:
                pids += [int(line) for line in self.read("began").split()]
            directory = os.path.realpath(self.path("runs/latest"))
            status = json.loads(subprocess.run([program.find(), "status", directory, "--json"], cwd=self.folder, check=True, stdout=subprocess.PIPE).stdout)
            end(p)
            _, err = p.communicate()
        for pid in [status["coordinator"]["pid"]] + pids:
            self.ends(pid)
        with open(os.path.join(directory, "stats.json")) as f:
            stats = json.load(f)
        return p.returncode, err, stats["run"]["state"], stats["tasks"][0]["success"]

    def ends(self, pid):
        """The process is gone, or a zombie of somebody else, within some seconds."""
        watch = threading.Event()
        for _ in range(100):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    if f.read().rpartition(")")[2].split()[0] == "Z":
                        return
            except OSError:
                return
            watch.wait(0.1)
        self.fail(f"process {pid} goes on")

    def interrupt(self, p):
        os.killpg(p.pid, signal.SIGINT)  # as a terminal does, all of its processes
        for line in p.stderr:
            if "no new blocks" in line:
                break
        subprocess.run([program.find(), "status"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)  # time for a second signal, which there is not
        self.write("go", "")

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "it looks into /proc")
    def test_an_interrupt_lets_running_blocks_end(self):
        status, err, state, success = self.run_then("1m", self.interrupt)
        self.assertIn("KeyboardInterrupt", err)
        self.assertEqual((status, state, success), (-signal.SIGINT, "interrupted", 2))
        self.only_left("began", "go", "runs", "script.py")

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "it looks into /proc")
    def test_an_interrupt_ends_the_script_also_when_those_were_the_last_blocks(self):
        status, err, state, success = self.run_then("1m", self.interrupt, WAITS.replace("work)", "work, 2)"))
        self.assertIn("KeyboardInterrupt", err)
        self.assertEqual((status, state, success), (-signal.SIGINT, "done", 2))

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "it looks into /proc")
    def test_a_python_that_is_killed_leaves_no_run(self):
        status, _, state, success = self.run_then("100ms", lambda p: p.kill())
        self.assertEqual((status, state, success), (-signal.SIGKILL, "interrupted", 0))

    def test_a_python_that_is_killed_before_the_run_has_begun_leaves_no_file(self):
        os.mkfifo(self.path("read"))
        self.write("submit", "#!/bin/sh\nfor job; do :; done\ncat $job > job\necho > read\nexec cat\n")  # the job is the last argument
        os.chmod(self.path("submit"), 0o755)
        with self.start(self.write("script.py", HEAD + MAIN + "    run_blockwise(line('a', note, skip_mask=bytes(4)))\n"), env={"DAISY_SUBMIT": self.path("submit"), "TMPDIR": self.folder}) as p:
            self.addCleanup(p.kill)
            self.read("read")
            p.kill()
            p.communicate()
        self.assertIn('skip_mask = "/dev/fd/', self.read("job"))
        self.only_left("job", "read", "script.py", "submit")

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "it looks into /proc")
    def test_a_child_that_it_has_forked_does_not_hold_the_run(self):
        def end(p):
            self.addCleanup(os.kill, int(self.read("child")), signal.SIGKILL)
            p.kill()

        status, _, state, success = self.run_then("100ms", end, FORKS)
        self.assertEqual((status, state, success), (-signal.SIGKILL, "interrupted", 0))

    def test_where_daisy_submit_is_killed_the_exception_says_how_to_go_on(self):
        def killed(arguments, folder, out, err, files):
            out(json.dumps({"event": "notice", "text": "run directory: /a b/runs/x"}))
            return program.Ended(-9, [], False)

        with mock.patch.object(program, "run", killed), self.assertRaises(daisy_submit.DaisySubmitError) as caught:
            daisy_submit.run_blockwise(Task("a", Roi((0,), (10,)), Roi((0,), (10,)), Roi((0,), (10,)), os.path.join), progress=False)
        self.assertRegex(str(caught.exception), "ended by signal 9, before the run had\nnext: .*daisy-submit run --resume '/a b/runs/x'")


class Scripts(Folder):
    RUN = "run_blockwise(line('a', note), progress=False)\n"

    def test_without_a_guard_nothing_is_started(self):
        self.refused(self.RUN, "FunctionRefused", "line 13 of it would then start the run again", 'if __name__ == "__main__":')

    def test_not_even_from_a_function_or_the_other_branch(self):
        self.refused("def main():\n    " + self.RUN + "\nmain()\n", "would then start the run again")
        self.refused('if __name__ == "__main__": pass\nelse: pass\nwith open(__file__): ' + self.RUN, "would then start the run again")
        self.refused('if __name__ == "__main__" and not sys.argv:\n    pass\nelse:\n    ' + self.RUN, "would then start the run again")
        self.refused('if sys.argv:\n    ' + self.RUN, "would then start the run again")
        self.refused('if __name__ != "main":\n    ' + self.RUN, "would then start the run again")

    def test_guards_of_all_forms(self):
        for guard in ('if "__main__" == __name__:\n    ', 'if __name__ == "__main__" and not sys.flags.inspect:\n    ', 'if __name__ == "__main__": '):
            self.succeeds("def main():\n    " + self.RUN + guard + "main()\n")

    def test_a_script_that_needs_none(self):
        self.write("steps.py", "def work(block): pass\n")
        self.succeeds("import steps\nrun_blockwise(line('a', steps.work), progress=False)\n")

    def test_what_a_check_needs_is_imported_before_anything_starts(self):
        status, _, err = self.script("assert __name__ == '__main__', 'only as a script'\n" + MAIN + "    run_blockwise(line('a', note, check_function=note))\n")
        self.assertEqual(status, 1)
        self.assertIn('FunctionRefused: check_function of task "a": ', err)
        self.assertIn("AssertionError: only as a script", err)
        self.only_left("script.py")

    def test_a_worker_that_would_start_the_run_again(self):
        self.write("steps.py", "import other\ndef work(block): pass\n")
        self.write("other.py", HEAD + "if 'DAISY_WORKER_ID' in os.environ: run_blockwise(line('a', note), progress=False)\n")
        status, _, err = self.script("import steps\nrun_blockwise(line('a', steps.work), progress=False)\n")
        self.assertEqual(status, 1)
        self.assertIn("run_blockwise was called by a worker", err)

    def test_without_a_file(self):
        text = HEAD.replace("def note", "def first(block): pass\ndef note") + "run_blockwise(line('a', first))\n"
        status, _, err = self.python("-c", text)
        self.assertEqual(status, 1)
        self.assertIn("first was typed in, and is in no file: put it into a file", err)
        self.only_left()

    def test_where_no_temporary_file_can_be_written(self):
        with mock.patch("tempfile.TemporaryFile", side_effect=PermissionError(13, "Permission denied", "x")), self.assertRaises(daisy_submit.DaisySubmitError) as caught:
            daisy_submit.run_blockwise(Task("a", Roi((0,), (10,)), Roi((0,), (10,)), Roi((0,), (10,)), os.path.join))
        self.assertIn("the job file cannot be written into the folder for temporary files: Permission denied; set the variable TMPDIR", str(caught.exception))

    def test_of_a_module_that_is_run(self):
        self.write("tool.py", HEAD + MAIN + "    " + self.RUN)
        status, out, err = self.python("-m", "tool")
        self.assertEqual(status, 0, out + err)

    def test_the_words_of_daisy_submit_come_as_an_error(self):
        self.refused(MAIN + "    run_blockwise(line('a b', note), progress=False)\n", "daisy_submit.errors.JobError", 'task "a b"')
        self.assertEqual(self.script(MAIN + "    run_blockwise(line('a b', note))\n")[2].count("daisy-submit: "), 1)
        self.refused(MAIN + "    run_blockwise(line('a', note), progress=False, graze='1s')\n", 'unknown key "graze"; did you mean "grace"?')
        self.refused(MAIN + "    run_blockwise(line('a', note, skip_mask=bytes(3)), progress=False)\n", 'task "a": skip_mask: the mask has shape (3)')
        self.refused(MAIN + "    run_blockwise(line('a', note, settings={'timeout': 10}), progress=False)\n", "timeout: found the bare number 10")
        self.refused(MAIN + "    run_blockwise(line('a', note, blocks=2**70), progress=False)\n", f'task "a": total.shape: {10 * 2**70} on axis 0 is too far from 0; allowed is within 2^58 of it')

    def test_without_the_program_the_places_are_named(self):
        status, _, err = self.script(MAIN + "    " + self.RUN, env={"DAISY_SUBMIT": "/nowhere/daisy-submit"})
        self.assertEqual(status, 1)
        self.assertIn("DAISY_SUBMIT names /nowhere/daisy-submit", err)
        with mock.patch.dict(os.environ, {"PATH": "/empty"}), mock.patch.object(program, "_folders", lambda: ["/first", "/second"]):
            os.environ.pop("DAISY_SUBMIT", None)
            with self.assertRaisesRegex(daisy_submit.ProgramMissing, "DAISY_SUBMIT .*, in /first, /second, and in PATH .*/empty.*make wheel"):
                program.find()


def plain(block):
    pass


def wrapped(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


def not_wrapped(function):
    def inner(block):
        return function(block)

    return inner


@wrapped
def decorated(block):
    pass


class Holder:
    def method(self, block):
        pass

    @staticmethod
    def static(block):
        pass

    def __call__(self, block):
        pass


replaced = plain


class References(unittest.TestCase):
    def test_what_has_a_name(self):
        for function, name in ((plain, "plain"), (decorated, "decorated"), (Holder.static, "Holder.static"), (os.path.join, "join")):
            ref = reference.reference(function, "f")
            self.assertEqual((ref.target, ref.function, ref.is_script), (function.__module__, name, False))

    def test_what_is_refused_and_what_to_do_instead(self):
        def nested(block):
            return os

        def closure(block):
            return nested

        moved = types.FunctionType(plain.__code__, globals(), "plain")
        moved.__module__, moved.__qualname__ = plain.__module__, "plain"
        for function, *words in (
            (lambda block: None, "a lambda has no name", "write a function with def at the top level"),
            (nested, "nested is defined inside References", "move it to the top level"),
            (closure, "closure is defined inside References", "keeps nested of it"),
            (not_wrapped(plain), "inner is defined inside not_wrapped", "functools.wraps"),
            (Holder().method, "Holder.method is bound to an object (Holder)", "write a function in the module that makes the object"),
            (Holder(), "a Holder, has no name in a module", "write a function that calls it"),
            (functools.partial(plain, 1), "is a partial", "write a function in the module that calls it"),
            (len, "len is written in C", "write a function in Python that calls it"),
            (math.sqrt, "sqrt is written in C"),
            (str.join, "join is written in C"),
            (moved, "is another object by now"),
            (5, "is a int, not a function"),
        ):
            with self.assertRaises(daisy_submit.FunctionRefused) as caught:
                reference.reference(function, 'process_function of task "a"')
            for word in ('process_function of task "a": ', "Workers import functions by their names; nothing is pickled.", *words):
                self.assertIn(word, str(caught.exception))

    def test_a_cell_of_a_notebook(self):
        cell = {"__name__": "__main__"}
        exec(compile("def work(block): pass\n", "/tmp/ipykernel_7/1234.py", "exec"), cell)
        main = types.ModuleType("__main__")
        main.work = cell["work"]
        with mock.patch.dict(sys.modules, {"__main__": main, "IPython": types.ModuleType("IPython")}):
            with self.assertRaisesRegex(daisy_submit.FunctionRefused, r"work is defined in a cell of a notebook.*%%writefile.*from steps import work"):
                reference.reference(cell["work"], "f")

    def test_a_function_without_arguments_is_a_worker(self):
        from daisy_submit.job import takes_block

        self.assertTrue(takes_block(plain))
        for function in (lambda: None, lambda *, context: None):
            self.assertFalse(takes_block(function))


def line(name, **keys):
    return Task(name, Roi((0,), (40,)), Roi((0,), (10,)), Roi((0,), (10,)), keys.pop("process_function", plain), **keys)


class Jobs(Folder):
    def setUp(self):
        super().setUp()
        where = os.getcwd()
        self.addCleanup(os.chdir, where)
        os.chdir(self.folder)

    def plan(self, tasks, **keys):
        keys.setdefault("settings", {})["*"] = {"run": {"command": ["true"]}}
        self.write("job.toml", daisy_submit.job_file(tasks, name="x", **keys))
        answer = subprocess.run([program.find(), "plan", "job.toml", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)

    def golden(self, task, roi):
        with open(GOLDEN[0]) as f:
            rows = [json.loads(text) for text in f]
        rows = [row for row in rows if row["num_blocks"]]
        self.assertGreater(len(rows), 150)
        tasks = []
        for i, row in enumerate(rows):
            t = row["task"]
            tasks.append(task(f"t{i}", *(roi(*t[k]) for k in ("total_roi", "read_roi", "write_roi")), plain, read_write_conflict=t["read_write_conflict"], fit=t["fit"]))
        planned = {t["id"]: t for t in self.plan(tasks)["tasks"]}
        for i, row in enumerate(rows):
            got = planned[f"t{i}"]
            self.assertEqual((got["blocks"], got["levels"], got["grid"]), (row["num_blocks"], row["num_levels"], row["grid_shape"]), row["task"])

    @unittest.skipUnless(GOLDEN, "the recorded answers of daisy are not here")
    def test_blocks_are_those_that_daisy_has(self):
        self.golden(Task, Roi)

    @unittest.skipUnless(GOLDEN and daisy, "daisy is not installed, or its recorded answers are not here")
    def test_with_daisy_blocks_are_those_that_it_has(self):
        self.golden(daisy.v2.Task if hasattr(daisy, "v2") else daisy.Task, daisy.Roi)

    def test_edges_of_all_forms(self):
        def after(tasks):
            return {t["id"]: sorted(t["after"]) for t in self.plan(tasks)["tasks"]}

        a, b, c, d = (line(n) for n in "abcd")
        self.assertEqual(after(a + (b | c) + d), {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]})
        self.assertEqual(after(Pipeline([d], [(a, b), (a, b)])), {"d": [], "a": [], "b": ["a"]})
        up = line("up")
        self.assertEqual(after([line("down", upstream_tasks=[up])]), {"up": [], "down": ["up"]})

    def test_values_go_over_as_they_are(self):
        text = daisy_submit.job_file(
            line("a", max_workers=3, max_retries=0, timeout=1.5, fit="overhang", max_worker_restarts=2, requires={"gpu": 1, "memory": "2GiB"}, resource_tracking=True), name="x"
        )
        for row in (
            "max_workers = 3", "max_retries = 0", 'timeout = "1500ms"', 'fit = "overhang"', "read_write_conflict = true", "max_worker_restarts = 2",
            'requires = { gpu = 1, memory = "2GiB" }', "resource_tracking = true", "total = { offset = [0], shape = [40] }",
        ):  # fmt: skip
            self.assertIn(row + "\n", text)
        self.assertIn('timeout = "600s"\n', daisy_submit.job_file(line("a")))
        self.assertIn('timeout = "0s"\n', daisy_submit.job_file(line("a", timeout=0)))
        self.assertIn('timeout = "0s"\n', daisy_submit.job_file(line("a", timeout=math.inf)))  # as daisy writes it
        self.assertIn('timeout = "1ms"\n', daisy_submit.job_file(line("a", timeout=0.0001)))  # which is a limit
        for wrong in ("10m", -1, math.nan):
            with self.assertRaisesRegex(daisy_submit.JobError, "timeout is .*; wanted seconds"):
                daisy_submit.job_file(line("a", timeout=wrong))
        for given, row in (({"num_workers": 5}, 5), ({"max_workers": 0}, 0), ({}, 1)):
            self.assertIn(f"max_workers = {row}\n", daisy_submit.job_file(line("a", **given)))
        self.assertRaises(TypeError, line, "a", max_workers=1, num_workers=1)

    def test_what_has_no_counterpart_is_refused_by_name(self):
        def refused(pattern, tasks, **keys):
            with self.assertRaisesRegex(daisy_submit.JobError, pattern):
                daisy_submit.job_file(tasks, **keys)

        for key in ("multiprocessing", "block_tracking", "return_states", "host", "summary"):
            refused(f"{key} is an option of daisy's run_blockwise that is not here: .*", line("a"), **{key: True})
        refused(r'requires {"memory": 16} has no unit', line("a", requires={"memory": 16}))
        refused("no process_function", line("a", process_function=None))
        refused("wanted a Task, a Pipeline, or a list of tasks; found a int", 5)
        refused("there is no task", [])
        refused("wanted a Task of daisy 2 or of daisy_submit", [object()])
        refused("settings names the task 'b'; there are a", line("a"), settings={"b": {}})
        refused('"b" has no tracking_path and others have', [line("a", tracking_path="m/a"), line("b")])
        refused("wanted a folder FOLDER/a", line("a", tracking_path="m/other"))
        refused("wanted one folder for all tasks", [line("a", tracking_path="m/a"), line("b", tracking_path="n/b")])
        refused("differ: give one of them", line("a", tracking_path="m/a"), tracking="other")
        refused("total_roi is .*; wanted a Roi", Task("a", None, Roi((0,), (1,)), Roi((0,), (1,)), plain))
        refused("skip_mask, which is a file of its own", line("a", skip_mask=bytes(4)))
        refused("skip_mask is .*wanted an array of bool or uint8", line("a", skip_mask=[0, 0, 0, 1]))
        with self.assertRaises(TypeError):
            line("a", init_callback_fn=plain)
        self.assertIn(f'tracking = "{self.path("m")}"', daisy_submit.job_file([line("a", tracking_path="m/a"), line("b", tracking_path="m/b")]))

    def test_all_arguments_of_a_wrong_kind_are_named_at_once(self):
        with self.assertRaises(daisy_submit.JobError) as caught:
            daisy_submit.job_file(
                line("a", max_workers="four", max_retries=2.5, requires=4, settings=[1], timeout="x", tracking_path=3), 7, name=3, directory=5, resources=4,
                settings={"a": 3, "*": {"env": 4, "x": {"y": [None]}, 5: 6}}, slurm=[1], grace=None, max_failures=1,
            )  # fmt: skip
        task, value = 'task "a": ', "a string, a number, True or False, or a list or dict of these"
        self.assertEqual(
            str(caught.exception).splitlines(),
            [
                'launcher is 7 (int); wanted "local", "serial" or "slurm"',
                "name is 3 (int); wanted a string",
                "directory is 5 (int); wanted a path",
                'resources is 4 (int); wanted a dict, as {"cpu": 4, "memory": "16GiB"}',
                "settings['a'] is 3 (int); wanted a dict of keys of [[task]], as {\"priority\": 2}",
                f"settings['*']['x']['y'][0] is None (NoneType); wanted {value}",
                "a key of settings['*'] is 5 (int); wanted a string",
                "settings['*']['env'] is 4 (int); wanted a dict",
                'slurm is [1] (list); wanted a dict of keys of [slurm], as {"partition": "gpu"}',
                f"grace is None (NoneType); wanted {value}",
                task + "max_workers is 'four' (str); wanted a whole number",
                task + "max_retries is 2.5 (float); wanted a whole number",
                task + "timeout is 'x' (str); wanted seconds, 0 or infinity for no limit",
                task + "tracking_path is 3 (int); wanted a path",
                task + 'requires is 4 (int); wanted a dict, as {"cpu": 4, "memory": "16GiB"}',
                task + "settings is [1] (list); wanted a dict of keys of [[task]], as {\"priority\": 2}",
            ],
        )
        for pattern, tasks, keys in (
            ('^settings is 3 \\(int\\); wanted a dict of dicts, as {"predict": {"priority": 2}}, by task', line("a"), {"settings": 3}),
            ('^task "a": upstream_tasks is 5', line("a", upstream_tasks=5), {}),
        ):
            with self.assertRaisesRegex(daisy_submit.JobError, pattern):
                daisy_submit.job_file(tasks, **keys)

    @unittest.skipUnless(daisy, "daisy is not installed")
    def test_with_daisy_its_tasks_are_taken_whole(self):
        def task(name, **keys):
            return daisy.v2.Task(task_id=name, total_roi=daisy.Roi((0,), (40,)), read_roi=daisy.Roi((-1,), (12,)), write_roi=daisy.Roi((0,), (10,)), process_function=plain, **keys)

        import daisy.v2
        import numpy

        a = task("a", max_workers=3, requires={"token": 1}, timeout=90, max_retries=5, fit="shrink", read_write_conflict=False, max_worker_restarts=4)
        text = daisy_submit.job_file(a + task("b"))
        for row in (
            'after = ["a"]', "max_workers = 3", "requires = { token = 1 }", 'timeout = "90s"', "max_retries = 5", 'fit = "shrink"', "read_write_conflict = false",
            "max_worker_restarts = 4", "read_roi = { offset = [-1], shape = [12] }",
        ):  # fmt: skip
            self.assertIn(row + "\n", text)
        self.assertIn('block = "daisy" }', text)
        self.assertIn(f'tracking = "{self.path("m")}"', daisy_submit.job_file(task("a", tracking_path=self.path("m/a"))))
        with contextlib.suppress(Exception):
            daisy.set_tracking_basedir(self.path("base"))
        self.addCleanup(daisy.set_tracking_basedir, None)
        self.assertIn(f'tracking = "{self.path("base")}"', daisy_submit.job_file(task("a")))
        self.assertNotIn("tracking = ", daisy_submit.job_file(task("a", tracking_path=False)))
        with self.assertRaisesRegex(daisy_submit.JobError, "skip_mask"):
            daisy_submit.job_file(task("a", skip_mask=numpy.zeros(3, bool)))
        up, down = task("up"), daisy.Task(task_id="down", total_roi=daisy.Roi((0,), (40,)), read_roi=daisy.Roi((0,), (10,)), write_roi=daisy.Roi((0,), (10,)), process_function=plain, upstream_tasks=[a])
        self.assertEqual({t["id"]: t["after"] for t in self.plan([up, down], resources={"cpu": 1, "token": 1})["tasks"]}, {"up": [], "a": [], "down": ["a"]})

    def test_options_of_slurm(self):
        self.write("job.toml", daisy_submit.job_file(line("a", settings={"slurm": {"time": "2h"}}), "slurm", slurm={"partition": "gpu"}, settings={"*": {"run": {"command": ["true"]}}}))
        answer = subprocess.run([program.find(), "render", "job.toml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("--partition=gpu", answer.stdout, answer.stderr)
        self.assertIn("--time=0-02:00:00", answer.stdout)

    def test_export_writes_a_job_file_that_runs(self):
        self.write("script.py", HEAD + "def make(): return [line('a', note, skip_mask=bytes([1, 0, 0, 0]))]\npipeline = line('a', note) + line('b', note)\n" + MAIN + "    run_blockwise(pipeline)\n")
        status, out, err = self.python("-m", "daisy_submit", "export", "script.py:pipeline")
        self.assertEqual(status, 0, err)
        self.assertIn('run = { python = "script.py:note"', out)
        self.write("job.toml", out)
        subprocess.run([program.find(), "run", "job.toml"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertEqual(len(glob.glob("[ab]-*")), 8)
        self.assertEqual(self.python("-m", "daisy_submit", "export", "script.py:make", "-o", "masked.toml"), (0, "", ""))
        planned = json.loads(subprocess.run([program.find(), "plan", "masked.toml", "--json"], check=True, stdout=subprocess.PIPE).stdout)
        self.assertEqual((planned["name"], planned["tasks"][0]["masked"]), ("script", 1))

    def test_what_export_refuses(self):
        self.write("script.py", HEAD + "task = line('a', note)\nmasked = line('a', note, skip_mask=bytes(4))\n" + MAIN + "    here = 5\n")
        self.write("open.py", HEAD + "task = line('a', note)\nrun_blockwise(task)\n")
        for arguments, words in (
            (["script.py:here"], 'is not seen; move it above, or into a function'),
            (["script.py:masked"], "name the job file with -o FILE"),
            (["other.py:task"], f"there is no file {self.path('other.py')}"),
            (["script:task"], 'wanted "script.py:pipeline"'),
            (["script.py:task", "-o", "/nowhere/job.toml"], "is in another folder"),
            (["open.py:task"], 'open.py runs its tasks when it is imported: put what starts the run below if __name__ == "__main__":'),
        ):
            status, out, err = self.python("-m", "daisy_submit", "export", *arguments)
            self.assertEqual((status, out), (2, ""), err)
            self.assertIn(words, err)


@unittest.skipUnless(daisy, "daisy is not installed")
class WithDaisy(Folder):
    HEAD = "import os\nimport daisy\nimport daisy_submit\n"

    def test_a_function_of_daisy_runs_unchanged(self):
        self.write(
            "script.py",
            self.HEAD
            + """
def work(block):
    assert type(block) is daisy.Block and block.status == daisy.BlockStatus.PROCESSING
    open(f"{block.task_id}-{block.block_id[1]}-{block.write_roi.to_slices()[0].start}", "w").close()
    if block.write_roi.contains((25,)):
        block.status = daisy.BlockStatus.FAILED

def done(block):
    return type(block) is daisy.Block and block.block_id == ("a", 3)

if __name__ == "__main__":
    task = daisy.Task("a", daisy.Roi((0,), (40,)), daisy.Roi((0,), (10,)), daisy.Roi((0,), (10,)), work, done, read_write_conflict=False, max_retries=0, max_workers=2)
    try:
        daisy_submit.run_blockwise([task], progress=False)
    except daisy_submit.BlocksFailed as e:
        print(e.failures[0].message, e.result.tasks["a"].success, e.result.tasks["a"].skipped)
""",
        )
        status, out, err = self.python("-W", "ignore", "script.py")
        self.assertEqual((status, out), (0, "RuntimeError: the function has set block.status to FAILED 2 1\n"), err)
        self.only_left("a-0-0", "a-1-10", "a-2-20", "runs", "script.py")

    def test_workers_of_daisy_ask_for_blocks_themselves(self):
        self.write(
            "script.py",
            self.HEAD
            + """
def loop(client):
    while True:
        with client.acquire_block() as block:
            if block is None:
                break
            open(f"{block.task_id}-{block.block_id[1]}", "w").close()
            assert block.block_id != ("b", 2), "no good"

def worker():
    loop(daisy.Client())

def told(*, context):
    assert context["task_id"] == "b"
    loop(daisy.Client(context))

def line(name, function):
    return daisy.Task(name, daisy.Roi((0,), (40,)), daisy.Roi((0,), (10,)), daisy.Roi((0,), (10,)), function, read_write_conflict=False, max_retries=0, max_workers=2)

if __name__ == "__main__":
    try:
        daisy_submit.run_blockwise(line("a", worker) + line("b", told), progress=False)
    except daisy_submit.BlocksFailed as e:
        print([(t.success, t.failed) for t in e.result.tasks.values()], e.failures[0].message)
""",
        )
        status, out, err = self.python("-W", "ignore", "script.py")
        self.assertEqual((status, out), (0, "[(4, 0), (3, 1)] AssertionError: no good\n"), err)
        self.only_left(*(f"{t}-{i}" for t in "ab" for i in range(4)), "runs", "script.py")


class Geometry(unittest.TestCase):
    def test_arithmetic_is_axis_by_axis(self):
        a = Coordinate(3, -4)
        self.assertEqual((a + (1, 1), 1 + a, a - 1, 1 - a, a * 2, a // 2, a / (1, 2), a % 3, -a), ((4, -3), (4, -3), (2, -5), (-2, 5), (6, -8), (1, -2), (3, -2), (0, 2), (-3, 4)))
        self.assertEqual((a.dims, Coordinate([1, 2])), (2, (1, 2)))
        for wrong in (lambda: a + (1,), lambda: Coordinate(1, 2, 3) * (1, 2)):
            self.assertRaises(ValueError, wrong)
        self.assertRaises(TypeError, lambda: Coordinate(1.5))

    def test_regions(self):
        r = Roi((10, 20), (5, 6))
        self.assertEqual((r.end, r.size, r.slices, r.dims), ((15, 26), 30, (slice(10, 15), slice(20, 26)), 2))
        self.assertEqual((r.grow(1, (2, 3)), r + 1, r - (1, 2), Roi((4, 8), (8, 4)) / 4), (Roi((9, 19), (8, 10)), Roi((11, 21), (5, 6)), Roi((9, 18), (5, 6)), Roi((1, 2), (2, 1))))
        self.assertEqual(r.intersect(Roi((0, 22), (12, 100))), Roi((10, 22), (2, 4)))
        self.assertFalse(r.intersects(Roi((15, 20), (1, 1))))
        self.assertTrue(r.contains(Roi((11, 21), (1, 1))) and r.contains((14, 25)) and not r.contains((15, 25)) and not r.contains(r.grow(1)))
        self.assertRaises(ValueError, lambda: Roi((-1,), (2,)).slices)
        for wrong in (((0,), (1, 1)), ((0,), (-1,))):
            self.assertRaises(ValueError, Roi, *wrong)

    @unittest.skipUnless(daisy, "daisy is not installed")
    def test_with_daisy_they_agree(self):
        for offset, shape, by in (((0, 5), (7, 9), (2, 3)), ((-8, 4), (8, 8), (4, 4))):
            ours, theirs = Roi(offset, shape), daisy.Roi(offset, shape)
            for form in (
                lambda r, c: r / c, lambda r, c: r * c, lambda r, c: r.grow(c, c), lambda r, c: r.shift(c), lambda r, c: r + c, lambda r, c: r - c,
                lambda r, c: r.intersect(r + c), lambda r, c: r.shift(r.offset + c),
            ):  # fmt: skip
                got, want = form(ours, Coordinate(by)), form(theirs, daisy.Coordinate(by))
                self.assertEqual((tuple(got.offset), tuple(got.shape)), (tuple(want.offset), tuple(want.shape)))


class Values(unittest.TestCase):
    def test_what_is_written_is_read_again(self):
        try:
            import tomllib
        except ImportError:
            self.skipTest("this Python reads no TOML")
        for value in ('a"b\\c\n\x00\x1f\x7f ä 𝄞', True, 0, -5, 1.5, 1e300, [], [1, "a", [2]], {"a": 1, "b c": {"d.e": "f"}}, {}):
            self.assertEqual(tomllib.loads(toml.table("[x]", {"k": value}))["x"]["k"], value)
        self.assertEqual(toml.value(type("float64", (float,), {"__repr__": lambda v: "np.float64(1.5)"})(1.5)), "1.5")
        self.assertRaises(TypeError, toml.value, object())
        self.assertRaisesRegex(daisy_submit.JobError, "not UTF-8", toml.value, "\udcff")

    def test_rows_of_statistics(self):
        stats = {"tasks": [{"id": "a", "blocks": 1, "failures": [{"block": 1}]}], "workers": [{"id": "1.0"}], "nodes": []}
        r = result.RunResult("i", "n", "done", None, 0, 1.0, None, {}, [], stats)
        frames = types.ModuleType("pandas")
        frames.json_normalize = lambda rows: rows
        with mock.patch.dict(sys.modules, {"pandas": frames}):
            self.assertEqual((r.to_frame(), r.to_frame("failures"), r.to_frame("workers"), r.to_frame("nodes")), ([{"id": "a", "blocks": 1}], [{"task": "a", "block": 1}], [{"id": "1.0"}], []))
            self.assertRaises(ValueError, r.to_frame, "blocks")
        with mock.patch.dict(sys.modules, {"pandas": None}):
            self.assertRaisesRegex(ImportError, "pip install pandas", r.to_frame)

    def test_progress_of_a_kind_that_is_not_here(self):
        self.assertRaisesRegex(daisy_submit.JobError, "progress is <object.*wanted True, False, or a function", progress.choose, object())


class Shown(unittest.TestCase):
    TASK = dict(id="predict", state="running", blocks=1240, waiting=0, ready=1025, leased=16, success=158, skipped=40, failed=1, orphaned=0, abandoned=0,
                retries=2, slots=16, per_second=13.25, eta_seconds=3678.5, waits=None)  # fmt: skip
    LINE = {"event": "progress", "state": "running", "elapsed_seconds": 12, "tasks": [TASK]}
    TEXT = "198/1,240   15%  13.2/s  1:01:18 left  16 running  40 skipped  1 FAILED"

    @mock.patch.dict(os.environ, {"COLUMNS": "120", "LINES": "30"})
    def test_bars_stay_below_notices(self):
        out = io.StringIO()
        bars = progress.Terminal(out)
        bars.update(progress.read(self.LINE))
        bars.notice("hello")
        bar = "predict  ███░░░░░░░░░░░░░░░░░ " + self.TEXT + "\n"
        self.assertEqual(out.getvalue(), bar + "\x1b[1A\x1b[J" + "hello\n" + bar)

    @mock.patch.dict(os.environ, {"COLUMNS": "30", "LINES": "6"})
    def test_bars_fit_into_the_terminal(self):
        out = io.StringIO()
        progress.Terminal(out).update(progress.read({**self.LINE, "tasks": [self.TASK] * 9}))
        self.assertEqual(out.getvalue(), "predict  ███░░░░░░░░░░░░░░░░░\n" * 3 + "… and 6 more tasks\n")

    def test_a_bar_is_full_when_all_blocks_are_done(self):
        def bar(**counts):
            return progress.bars(progress.read({**self.LINE, "tasks": [{**self.TASK, "per_second": None, "eta_seconds": None, "blocks": 1000, "leased": 0, "skipped": 0, "failed": 0, **counts}]}), 4)[0]

        self.assertEqual(bar(success=999, abandoned=1), "predict  ███░ 999/1,000   99%  1 abandoned")
        self.assertEqual(bar(success=960, skipped=40), "predict  ████ 1,000/1,000  100%  40 skipped")

    def test_lines_elsewhere(self):
        out = io.StringIO()
        progress.Lines(out, every=0).update(progress.read(self.LINE))
        progress.Lines(out, every=1000).update(progress.read(self.LINE))
        self.assertEqual(out.getvalue(), "predict  " + self.TEXT + "\n")

    def test_in_a_notebook_one_output_is_updated(self):
        shown = []
        handle = types.SimpleNamespace(update=shown.append)

        def display(content, display_id):
            shown.append(content)
            return handle

        shell = types.ModuleType("IPython")
        shell.get_ipython = lambda: types.SimpleNamespace(kernel=1)
        shell.display = types.ModuleType("IPython.display")
        shell.display.HTML, shell.display.display = str, display
        with mock.patch.dict(sys.modules, {"IPython": shell, "IPython.display": shell.display}):
            bars = progress.choose(True)
        bars.update(progress.read(self.LINE))
        bars.notice("a < b")
        self.assertEqual(shown[0], "<pre>starting …</pre>")
        self.assertTrue(shown[2].startswith("<pre>predict  ███") and shown[2].endswith("\na &lt; b</pre>"))


if __name__ == "__main__":
    unittest.main()
