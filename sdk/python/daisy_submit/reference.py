"""The name by which a worker can import a function, or why there is none and what to do instead."""

from __future__ import annotations

import ast
import functools
import os
import sys
import types
from dataclasses import dataclass
from typing import Any, Callable, Optional

from .errors import FunctionRefused


@dataclass(frozen=True)
class Reference:
    target: str  # a module, or the absolute path of a file
    function: str
    is_script: bool  # the program that runs now

    @property
    def is_file(self) -> bool:
        return self.target.endswith(".py")

    def text(self, folder: str) -> str:
        """As a job file in that folder has it."""
        target = self.target
        if self.is_file:
            relative = os.path.relpath(target, folder)
            target = target if relative.startswith("..") else relative
        return f"{target}:{self.function}"


def reference(function: Callable[..., Any], what: str) -> Reference:
    """what names the function in messages: 'process_function of task "a"'."""
    try:
        return _reference(function)
    except FunctionRefused as e:
        raise FunctionRefused(f"{what}: {e}. Workers import functions by their names; nothing is pickled.") from None


def _reference(function: Callable[..., Any]) -> Reference:
    if not callable(function):
        raise FunctionRefused(f"{function!r} is a {type(function).__name__}, not a function")
    if isinstance(function, functools.partial):
        raise FunctionRefused(f"{function!r} is a partial, whose arguments no name brings along: write a function in the module that calls it with them")
    if isinstance(function, (types.MethodType, types.MethodWrapperType)):
        raise FunctionRefused(
            f"{_name(function)} is bound to an object ({type(function.__self__).__name__}), which no name brings along: write a function "
            "in the module that makes the object and calls its method"
        )
    if isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
        raise FunctionRefused(f"{_name(function)} is written in C and knows nothing of blocks: write a function in Python that calls it")
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise FunctionRefused(f"{function!r}, a {type(function).__name__}, has no name in a module: write a function that calls it")
    if "<lambda>" in name:
        raise FunctionRefused("a lambda has no name: write a function with def at the top level of a module")
    if "<locals>" in name:
        outer, inner = name.split(".<locals>", 1)[0], name.rpartition(".")[2]
        kept = getattr(getattr(function, "__code__", None), "co_freevars", ())
        brings = f" and keeps {', '.join(kept)} of it" if kept else ""
        raise FunctionRefused(
            f"{inner} is defined inside {outer}{brings}: move it to the top level of its module, and let it read what it needs from there "
            "(a decorator that makes such functions needs functools.wraps)"
        )
    found = _script(function, name) if module == "__main__" else _module(module, name)
    if _resolve(sys.modules[module], name) is not function:
        raise FunctionRefused(f"{name} of {module} is another object by now than the function that was given: give the one that has the name")
    return found


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or function)


def _module(module: str, name: str) -> Reference:
    file = getattr(sys.modules.get(module), "__file__", None)
    if module not in sys.modules:
        raise FunctionRefused(f"{name} says that it is of the module {module}, which is not loaded: define it in a file that can be imported")
    if getattr(sys.modules[module], "_daisy_submit_file", False):  # the script of "export"
        return Reference(os.path.abspath(str(file)), name, False)
    return Reference(module, name, False)


def _script(function: Callable[..., Any], name: str) -> Reference:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec is not None and spec.name != "__main__" and not spec.name.endswith(".__main__"):
        return Reference(spec.name, name, True)  # python -m package.module
    defined = getattr(getattr(function, "__code__", None), "co_filename", "")
    if file is None or defined.startswith("<") or not os.path.exists(file):
        if "IPython" in sys.modules:
            raise FunctionRefused(
                f"{name} is defined in a cell of a notebook: put it into a file beside the notebook (%%writefile steps.py at the top of its "
                "cell does that), and import it from there (from steps import " + name.partition(".")[0] + ")"
            )
        raise FunctionRefused(f"{name} was typed in, and is in no file: put it into a file and import it from there")
    if not file.endswith(".py"):
        raise FunctionRefused(f"{name} is defined in {file}, which cannot be imported: a Python file has a name that ends in .py; rename it, or move the function into one")
    return Reference(os.path.abspath(file), name, True)


def _resolve(module: types.ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def check_guard(what: str) -> None:
    """Refuses a script that would run again when a worker imports it: its call that led here is not below if __name__ == "__main__":."""
    main = sys.modules["__main__"]
    line = _line_of(main)
    file = getattr(main, "__file__", None)
    if line is None or file is None:
        return
    with open(file, "rb") as f:
        tree = ast.parse(f.read(), file)
    for statement in tree.body:
        last = getattr(statement, "end_lineno", None) or statement.lineno
        if statement.lineno <= line <= last and not _is_guarded(statement, line):
            raise FunctionRefused(
                f"{what} is in {os.path.basename(file)}, which workers import, and line {line} of it would then start the run again: put what "
                f'starts the run below\n\n    if __name__ == "__main__":\n\nat the end of {os.path.basename(file)}'
            )


def _line_of(main: types.ModuleType) -> Optional[int]:
    """The line of the script itself that is being run now."""
    for frame in sys._current_frames().values():
        at: Optional[types.FrameType] = frame
        while at is not None:
            if at.f_code.co_name == "<module>" and at.f_globals is vars(main):
                return at.f_lineno
            at = at.f_back
    return None


def _is_guarded(statement: ast.stmt, line: int) -> bool:
    if not isinstance(statement, ast.If) or not any(_compares_main(n) for n in ast.walk(statement.test)):
        return False
    return all(line < other.lineno for other in statement.orelse)


def _compares_main(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
        return False
    sides = (node.left, node.comparators[0])
    names = [s.id for s in sides if isinstance(s, ast.Name)]
    texts = [s.value for s in sides if isinstance(s, ast.Constant)]
    return names == ["__name__"] and texts == ["__main__"]
