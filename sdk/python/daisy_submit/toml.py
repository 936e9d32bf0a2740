"""Writes TOML: the few kinds of values that a job file has."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping

from .errors import JobError

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def key(name: str) -> str:
    return name if _BARE.match(name) else string(name)


def string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # a file name of other bytes
        raise JobError(f"{text!r} is not UTF-8, which a job file must be: rename the file or folder") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def value(v: Any) -> str:
    """A string, whole or other number, boolean, list or table."""
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return string(v)
    if isinstance(v, int):
        return str(int(v))
    if isinstance(v, float):
        return repr(float(v))  # those of numpy call themselves np.float64(1.5)
    if isinstance(v, Mapping):
        return "{ " + ", ".join(f"{key(str(k))} = {value(item)}" for k, item in v.items()) + " }" if v else "{}"
    if isinstance(v, (list, tuple)):
        return "[" + ", ".join(value(item) for item in v) + "]"
    if hasattr(v, "__fspath__"):
        return string(str(v.__fspath__()))
    if hasattr(v, "__index__"):
        return str(v.__index__())  # whole numbers of numpy
    raise TypeError(f"{v!r}, a {type(v).__name__}, has no place in a job file")


def has_place(v: Any) -> bool:
    """Whether value can write it, if it is no list or table."""
    return isinstance(v, (bool, str, int, float)) or hasattr(v, "__fspath__") or hasattr(v, "__index__")


def table(header: str, content: Mapping[str, Any]) -> str:
    return "\n".join([header] + [f"{key(k)} = {value(v)}" for k, v in content.items()]) + "\n"
