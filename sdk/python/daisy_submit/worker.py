"""What a worker starts for a function: python -m daisy_submit.worker loop REFERENCE | check PACKAGE REFERENCE | import REFERENCE.

import only imports it, as run_blockwise does before a run. loop calls a function without arguments, which asks for blocks itself (daisy.Client). check calls a check_function with the block that
is on standard input, and exits with 0 if it is done, 1 if not.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from typing import Any, Callable, List


def load(reference: str) -> Callable[..., Any]:
    """The function of "module:function" or "file.py:function"; the file's folder comes first in sys.path then."""
    target, _, name = reference.rpartition(":")
    if target.endswith(".py"):
        path = os.path.abspath(target)
        sys.path.insert(0, os.path.dirname(path))
        stem = os.path.basename(path)[: -len(".py")].replace(".", "_")
        spec = importlib.util.spec_from_file_location(stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[stem] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(target)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return function


def loop(reference: str) -> None:
    function = load(reference)
    if "context" in inspect.getfullargspec(function).kwonlyargs:
        import daisy

        function(context=daisy.Context.from_env())
    else:
        function()


def check(package: str, reference: str) -> int:
    block = json.load(sys.stdin)
    theirs = importlib.import_module(package)
    read, write = (theirs.Roi(block[r]["offset"], block[r]["shape"]) for r in ("read", "write"))
    given = theirs.Block(read, read, write, task_id=block["task"], block_id=block["block"])
    return 0 if load(reference)(given) else 1


def main(arguments: List[str]) -> int:
    try:
        if arguments[0] == "check":
            return check(*arguments[1:])
        if arguments[0] == "import":
            load(arguments[1])
        else:
            loop(*arguments[1:])
        return 0
    except Exception:
        traceback.print_exc()
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
