"""python3 -m unittest, in this folder. That the protocol is kept is tested by daisy-worker conformance."""

import json
import os
import subprocess
import sys
import unittest

from daisy_worker import Roi

HERE = os.path.dirname(os.path.abspath(__file__))


def block(lease, **changed):
    return {"task": "t", "block": 17, "index": [0, 1], "read": {"offset": [-1, 9], "shape": [12, 12]},
            "write": {"offset": [0, 10], "shape": [10, 10]}, "attempt": 1, "lease": lease, **changed}  # fmt: skip


def program(body, *blocks):
    """What a program answers, its exit status and what it prints."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    with subprocess.Popen(
        [sys.executable, "-c", "import daisy_worker\n" + body], cwd=HERE, env={**os.environ, "DAISY_ANSWER_FD": str(write)}, pass_fds=[write],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as p:  # fmt: skip
        os.close(write)
        printed, _ = p.communicate("".join(json.dumps(b) + "\n" for b in blocks).encode())
    with os.fdopen(read) as answers:
        return [json.loads(line) for line in answers], p.returncode, printed.decode()


def ok(lease):
    return {"lease": lease, "ok": True}


def failed(lease, error):
    return {"lease": lease, "ok": False, "error": error}


class Blocks(unittest.TestCase):
    def test_a_block_is_done_when_the_loop_goes_on(self):
        answers, status, printed = program("for b in daisy_worker.blocks(): print(b.task, b.block, b.index, b.attempt, b.lease, b.read)", block("1.1"), block("1.2", block=None))
        self.assertEqual((answers, status), ([ok("1.1"), ok("1.2")], 0))
        self.assertEqual(printed.splitlines()[0], "t 17 (0, 1) 1 1.1 Roi(offset=(-1, 9), shape=(12, 12))")

    def test_an_exception_fails_its_block_and_ends_the_program(self):
        answers, status, printed = program("for b in daisy_worker.blocks(): 1 / (b.attempt - 1)", block("1.1", attempt=2), block("1.2"), block("1.3"))
        self.assertEqual((answers, status), ([ok("1.1"), failed("1.2", "ZeroDivisionError: division by zero")], 1))
        self.assertIn("Traceback", printed)

    def test_within_a_with_the_program_goes_on(self):
        answers, status, printed = program("for b in daisy_worker.blocks():\n  with b: 1 / (b.attempt - 1)", block("1.1"), block("1.2", attempt=2))
        self.assertEqual((answers, status), ([failed("1.1", "ZeroDivisionError: division by zero"), ok("1.2")], 0))
        self.assertIn("Traceback", printed)

    def test_a_function_fails_its_block_without_our_own_lines(self):
        answers, status, printed = program("def f(b): raise KeyError('a')\ndaisy_worker.run(f)", block("1.1"), block("1.2"))
        self.assertEqual((answers, status), ([failed("1.1", "KeyError: 'a'"), failed("1.2", "KeyError: 'a'")], 0))
        self.assertNotIn("daisy_worker", printed)

    def test_what_was_said_is_not_said_again(self):
        answers, status, _ = program("for b in daisy_worker.blocks():\n  b.fail('no')\n  assert b.answered", block("1.1"), block("1.2"))
        self.assertEqual((answers, status), ([failed("1.1", "no"), failed("1.2", "no")], 0))

    def test_done_stands_before_a_break(self):
        answers, status, _ = program("for b in daisy_worker.blocks():\n  b.done()\n  break", block("1.1"), block("1.2"))
        self.assertEqual((answers, status), ([ok("1.1")], 0))

    def test_without_it_a_break_answers_nothing(self):
        answers, status, _ = program("for b in daisy_worker.blocks(): break", block("1.1"))
        self.assertEqual((answers, status), ([], 0))

    def test_notes_and_code_do_not_stand_in_the_message(self):
        body = "for b in daisy_worker.blocks():\n  with b:\n    e = ValueError('x')\n    if hasattr(e, 'add_note'): e.add_note('note')\n    raise e"
        self.assertEqual(program(body, block("1.1"))[0], [failed("1.1", "ValueError: x")])
        answers, _, _ = program("for b in daisy_worker.blocks():\n  with b: compile('a b', 'x', 'exec')", block("1.1"))
        self.assertTrue(answers[0]["error"].startswith("SyntaxError: "), answers)

    def test_what_is_no_block_is_an_error(self):
        _, status, printed = program("for b in daisy_worker.blocks(): pass", {"task": "t"})
        self.assertEqual(status, 1)
        self.assertIn("no block on standard input", printed)

    def test_outside_of_daisy_the_error_says_how_to_start_it(self):
        env = {k: v for k, v in os.environ.items() if k != "DAISY_ANSWER_FD"}
        p = subprocess.run([sys.executable, "-c", "import daisy_worker; daisy_worker.blocks()"], cwd=HERE, env=env, stderr=subprocess.PIPE)
        self.assertIn(b"daisy-worker conformance -- python3 program.py", p.stderr)


class Regions(unittest.TestCase):
    def test_end_and_slices(self):
        roi = Roi((2, 3), (4, 5))
        self.assertEqual((roi.end, roi.slices), ((6, 8), (slice(2, 6), slice(3, 8))))

    def test_slices_of_what_begins_before_the_array_are_an_error(self):
        with self.assertRaisesRegex(ValueError, r"clip\(array.shape\)"):
            Roi((0, -1), (4, 5)).slices

    def test_clip_gives_the_part_inside(self):
        for roi, shape, want in [
            (Roi((-2, 3), (5, 4)), (10, 5), Roi((0, 3), (3, 2))),
            (Roi((1, 1), (2, 2)), (10, 10), Roi((1, 1), (2, 2))),
            (Roi((-5, 20), (2, 2)), (10, 10), Roi((0, 10), (0, 0))),
        ]:
            self.assertEqual(roi.clip(shape), want)
        with self.assertRaisesRegex(ValueError, "has 2 axes, the array has 3"):
            Roi((0, 0), (1, 1)).clip((5, 5, 5))

    def test_relative_to_where_the_reading_began(self):
        read = Roi((-7, 25), (46, 46)).clip((60, 60))
        self.assertEqual(Roi((0, 32), (32, 28)).relative_to(read), Roi((0, 7), (32, 28)))


if __name__ == "__main__":
    unittest.main()
