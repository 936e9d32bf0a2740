"""Calls a function for each block, by reference: "check" only imports it and says what is wrong, "run" goes on to the blocks.

This text comes on standard input, behind that of daisy_worker in sdk. Arguments: check|run, the module or file, the function, and
the package whose blocks it gets ("" = those of daisy_worker).
"""

import sys

# What daisy itself needs is the standard library's, whatever lies in the working directory; that is put back before the import.
sys.path[:] = [folder for folder in sys.path if folder != ""]

import difflib
import glob
import importlib
import importlib.util
import inspect
import json
import os
import traceback
import types

daisy_worker = types.ModuleType("daisy_worker")
sys.modules["daisy_worker"] = daisy_worker
exec(compile(sdk, "daisy_worker.py", "exec"), daisy_worker.__dict__)


class CannotImport(Exception):
    """What is wrong with the reference, and what to change."""


def load(target, name):
    """The function of that name."""
    is_file = target.endswith(".py")
    module = from_file(target) if is_file else from_path(target)
    where = getattr(module, "__file__", None) or "the package in " + ", ".join(map(str, getattr(module, "__path__", ["?"])))
    found, so_far = module, ""
    for part in name.split("."):
        owner = f"{where} has no" if not so_far else f"{so_far} of {where} has no"
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CannotImport(f"{owner} {part}{nearest(part, functions(found))}") from None
        so_far = f"{so_far}.{part}" if so_far else part
    if not callable(found):
        raise CannotImport(f"{name} of {where} is a {type(found).__name__}, not a function{nearest(name, functions(module))}")
    if inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
        raise CannotImport(f"{name} of {where} is an async function: a call does not run it; name a function that calls asyncio.run()")
    if inspect.isgeneratorfunction(found):
        raise CannotImport(f"{name} of {where} is a generator (it has a yield): a call does not run it; name a function without yield")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return found  # some functions in C do not tell
    try:
        signature.bind(None)
    except TypeError as e:
        raise CannotImport(f"{name}{signature} of {where} cannot be called with the block as its only argument: {e}") from None
    return found


def from_file(path):
    """The module that a file is, with the file's folder first in sys.path, as if it were run as a script."""
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path)[: -len(".py")].replace(".", "_")
    if name in sys.modules or name in getattr(sys, "stdlib_module_names", ()):
        raise CannotImport(f"{path} has the name of a module of the standard library, or of one that is loaded already; give the file another name")
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except BaseException as e:
        raise import_failed(path, e) from e
    return module


def from_path(target):
    """The module of that name in sys.path, where the folder of the job file comes first."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as e:
        missing = e.name or ""
        if target != missing and not target.startswith(missing + "."):
            raise import_failed(target, e) from e
        parent = missing.rpartition(".")[0]
        if parent and not hasattr(sys.modules[parent], "__path__"):
            where = getattr(sys.modules[parent], "__file__", "built in")
            raise CannotImport(f'"{parent}" ({where}) is no package, so there is no module "{missing}"') from None
        if parent:
            folders = list(sys.modules[parent].__path__)
            text = f'the package "{parent}" has no module "{missing.rpartition(".")[2]}"; searched were {", ".join(folders)}'
        else:
            folders = [folder]
            text = f'{this_python()} finds no module "{missing}"; searched were {", ".join(sys.path)}'
        raise CannotImport(text + nearest(missing.rpartition(".")[2], modules(folders)) + moved(missing) + other_environment()) from None
    except BaseException as e:
        raise import_failed(target, e) from e


def import_failed(target, error):
    """The module is there, and its own code fails."""
    traceback.print_exception(type(error), error, error.__traceback__)
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):  # code that cannot be read has no frame
        places.append((error.filename or "<", error.lineno))
    place = "".join(f" at {file}:{line}" for file, line in [p for p in places if not p[0].startswith("<")][-1:])
    text = f"importing {target} failed{place}: {daisy_worker.describe(error).replace(': it called sys.exit() instead of returning', '')}"
    if isinstance(error, SystemExit):
        text += '; what is to happen only when the file is run as a script belongs below if __name__ == "__main__":'
    elif isinstance(error, ModuleNotFoundError):
        text += f"; install it ({sys.executable} -m pip install ...), or use an interpreter that has it" + moved(error.name or "") + other_environment()
    return CannotImport(text)


def with_blocks_of(package, function):
    """The function, called with blocks of a package that has Block, Roi and BlockStatus as daisy 2 has them."""
    try:
        theirs = importlib.import_module(package)
        make_block, make_roi, status = theirs.Block, theirs.Roi, theirs.BlockStatus
    except ModuleNotFoundError as e:
        if e.name != package.partition(".")[0]:
            raise import_failed(package, e) from e
        raise CannotImport(
            f"{this_python()} finds no module {package}, whose Block the function is to get (the key block); "
            f"install it ({sys.executable} -m pip install {package}), or use an interpreter that has it" + other_environment()
        ) from None
    except AttributeError as e:
        raise CannotImport(f"{package}, whose Block the function is to get (the key block), is no package for that: {e}") from None
    except BaseException as e:
        raise import_failed(package, e) from e

    def call(block):
        if block.block is None:
            raise OverflowError(f"the id of the block at {block.index} has more than 64 bits, so that {package} cannot name it")
        read, write = (make_roi(roi.offset, roi.shape) for roi in (block.read, block.write))
        given = make_block(read, read, write, task_id=block.task, block_id=block.block)
        given.status = status.PROCESSING
        result = function(given)
        if given.status not in (status.PROCESSING, status.SUCCESS):
            raise RuntimeError("the function has set block.status to FAILED")
        return result

    daisy_worker._ours.add(call.__code__)
    return call


def this_python():
    return f"{sys.executable} (Python {sys.version.split()[0]})"


def nearest(name, names):
    close = difflib.get_close_matches(name, names, 1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f'; there are {", ".join(names)}' if 0 < len(names) <= 8 else ""


def functions(owner):
    return sorted(n for n, v in vars(owner).items() if callable(v) and not n.startswith("_")) if hasattr(owner, "__dict__") else []


def modules(folders):
    names = set()
    for folder in folders:
        for path in glob.glob(os.path.join(glob.escape(folder), "*")):
            name = os.path.basename(path)
            if name.endswith(".py") and name != "__init__.py":
                names.add(name[:-3])
            elif os.path.isfile(os.path.join(path, "__init__.py")):
                names.add(name)
    return sorted(names)


def moved(name):
    """An editable install leaves the code where it was, and that folder may be gone, or not be on this machine."""
    top = name.partition(".")[0]
    for folder in sys.path:
        for path in glob.glob(os.path.join(glob.escape(folder), "*.dist-info", "direct_url.json")):
            try:
                with open(path, encoding="utf-8") as f:
                    source = json.load(f)
                project = os.path.basename(os.path.dirname(path)).split("-")[0]
                listed = os.path.join(os.path.dirname(path), "top_level.txt")
                names = {project.lower()}
                if os.path.exists(listed):
                    with open(listed, encoding="utf-8") as f:
                        names = {line.strip() for line in f}
            except (OSError, ValueError):
                continue
            url = source.get("url", "")
            if source.get("dir_info", {}).get("editable") and top in names and url.startswith("file://"):
                code = url[len("file://") :]
                if not os.path.isdir(code):
                    return f"; it is an editable install of {code}, which is not there: put the code back, or install it without -e"
                return f"; it is an editable install of {code}, where it is not found: install it again ({sys.executable} -m pip install -e {code})"
    return ""


def active_environment():
    """The environment that is active where this interpreter is not its own: its variable and its folder."""
    active = [(v, os.environ[v]) for v in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(v)]
    own = os.path.realpath(sys.prefix)
    if not active or any(os.path.realpath(folder) == own for _, folder in active):
        return None
    return active[0]


def other_environment():
    active = active_environment()
    if active:
        variable, folder = active
        return f'; {variable} says that {folder} is active, but this interpreter is not its: write interpreter = "{folder}/bin/python"'
    if sys.prefix == sys.base_prefix:
        for folder in (".venv", "venv"):
            if os.access(os.path.join(folder, "bin", "python"), os.X_OK):
                return f'; there is a virtual environment beside the job file: write interpreter = "{folder}/bin/python"'
    return ""


def main(mode, target, name, package):
    sys.argv = [target]
    # From here on standard input and the descriptor of the answers are out of the user code's reach, while it is imported too.
    channel = daisy_worker._channel = daisy_worker._Channel()
    try:
        function = load(target, name)
        if package:
            function = with_blocks_of(package, function)
    except CannotImport as e:
        channel.send({"import": str(e)})
        sys.exit(1)
    if mode == "check":
        active = active_environment()
        warning = f"{active[0]} says that {active[1]} is active, but {this_python()} is not its" if active else ""
        channel.send({"import": "", "warning": warning})
        os._exit(0)  # threads of the module, and what it registered for the end, are none of the check's
    daisy_worker.run(function)


main(*sys.argv[2:])
