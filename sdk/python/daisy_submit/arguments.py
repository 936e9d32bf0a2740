"""Says what is wrong with the arguments of a call: which, what it is, what is wanted, and all of them at once."""

from __future__ import annotations

import os
from typing import Any, Iterator, List, Mapping, Sequence, Tuple

from . import toml
from .errors import JobError

# An argument, its value, whether that is as wanted, and what is.
Row = Tuple[str, Any, bool, str]

TABLE = 'a dict, as {"cpu": 4, "memory": "16GiB"}'


def check(rows: Sequence[Row]) -> None:
    wrong = [f"{name} is {value!r} ({type(value).__name__}); wanted {wanted}" for name, value, good, wanted in rows if not good]
    if wrong:
        raise JobError("\n".join(wrong))


def is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def table(name: str, value: Any, wanted: str = TABLE) -> List[Row]:
    """Rows of a table of a job file."""
    return list(values(name, value)) if isinstance(value, Mapping) else [(name, value, False, wanted)]


def keys_of_task(name: str, value: Any) -> List[Row]:
    """Rows of further keys of [[task]]."""
    rows = table(name, value, 'a dict of keys of [[task]], as {"priority": 2}')
    if isinstance(value, Mapping):
        rows += [(f"{name}[{k!r}]", value[k], isinstance(value[k], Mapping), "a dict") for k in ("env", "requires") if k in value]
    return rows


def values(name: str, value: Any) -> Iterator[Row]:
    """Rows of a value of a job file, and of all inside it."""
    if isinstance(value, Mapping):
        for k, v in value.items():
            yield f"a key of {name}", k, isinstance(k, str), "a string"
            yield from values(f"{name}[{k!r}]", v)
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            yield from values(f"{name}[{i}]", v)
    else:
        yield name, value, toml.has_place(value), "a string, a number, True or False, or a list or dict of these"
