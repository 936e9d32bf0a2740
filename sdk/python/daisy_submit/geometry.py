"""Coordinates and regions, for those who have not installed daisy: whole numbers, in whatever units the tasks have."""

from __future__ import annotations

import operator
from typing import Any, Callable, Iterable, Tuple, Union

Number = Union[int, Iterable[int]]


class Coordinate(Tuple[int, ...]):
    """A point, or an extent: one whole number for each axis. Arithmetic is axis by axis; a single number stands for all axes."""

    def __new__(cls, *values: Any) -> Coordinate:
        if len(values) == 1 and not isinstance(values[0], int):
            values = tuple(values[0])
        return super().__new__(cls, (operator.index(v) for v in values))

    @property
    def dims(self) -> int:
        return len(self)

    def _each(self, other: Number, op: Callable[[int, int], int]) -> Coordinate:
        others = [other] * len(self) if isinstance(other, int) else [operator.index(v) for v in other]
        if len(others) != len(self):
            raise ValueError(f"{tuple(self)} has {len(self)} axes, {tuple(others)} has {len(others)}")
        return Coordinate([op(a, b) for a, b in zip(self, others)])

    def __add__(self, other: Number) -> Coordinate:  # type: ignore[override]
        return self._each(other, operator.add)

    def __radd__(self, other: Number) -> Coordinate:
        return self._each(other, operator.add)

    def __sub__(self, other: Number) -> Coordinate:
        return self._each(other, operator.sub)

    def __rsub__(self, other: Number) -> Coordinate:
        return self._each(other, lambda a, b: b - a)

    def __mul__(self, other: Number) -> Coordinate:  # type: ignore[override]
        return self._each(other, operator.mul)

    def __rmul__(self, other: Number) -> Coordinate:  # type: ignore[override]
        return self._each(other, operator.mul)

    def __floordiv__(self, other: Number) -> Coordinate:
        return self._each(other, operator.floordiv)

    __truediv__ = __floordiv__  # as funlib.geometry has it

    def __mod__(self, other: Number) -> Coordinate:
        return self._each(other, operator.mod)

    def __neg__(self) -> Coordinate:
        return Coordinate([-v for v in self])


class Roi:
    """A region: where it begins and its extents. The end itself is outside."""

    __slots__ = ("_offset", "_shape")

    def __init__(self, offset: Iterable[int], shape: Iterable[int]) -> None:
        self._offset, self._shape = Coordinate(offset), Coordinate(shape)
        if len(self._offset) != len(self._shape):
            raise ValueError(f"the offset {tuple(self._offset)} has {len(self._offset)} axes, the shape {tuple(self._shape)} has {len(self._shape)}")
        if any(s < 0 for s in self._shape):
            raise ValueError(f"the shape {tuple(self._shape)} is negative")

    @property
    def offset(self) -> Coordinate:
        return self._offset

    @property
    def shape(self) -> Coordinate:
        return self._shape

    @property
    def begin(self) -> Coordinate:
        return self._offset

    @property
    def end(self) -> Coordinate:
        return self._offset + self._shape

    @property
    def dims(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        """How many units there are in it."""
        n = 1
        for s in self._shape:
            n *= s
        return n

    @property
    def empty(self) -> bool:
        return self.size == 0

    @property
    def slices(self) -> Tuple[slice, ...]:
        """The region as an index of an array. A negative offset, which would count from the array's end, is an error."""
        if any(o < 0 for o in self._offset):
            raise ValueError(f"{self!r} begins before the array: take the part inside it first, as intersect() does")
        return self.to_slices()

    def to_slices(self) -> Tuple[slice, ...]:
        """As slices, without a look at negative offsets: what funlib.geometry has."""
        return tuple(slice(o, e) for o, e in zip(self._offset, self.end))

    def contains(self, other: Union[Roi, Iterable[int]]) -> bool:
        """Whether a region, or a point, lies wholly inside."""
        if isinstance(other, Roi):
            return other.empty or all(b <= o and p <= e for b, o, p, e in zip(self.begin, other.begin, other.end, self.end))
        return all(b <= p < e for b, p, e in zip(self.begin, other, self.end))

    def intersect(self, other: Roi) -> Roi:
        """What is in both; empty where nothing is."""
        begin = Coordinate([max(a, b) for a, b in zip(self.begin, other.begin)])
        return Roi(begin, [max(min(a, b) - o, 0) for a, b, o in zip(self.end, other.end, begin)])

    def intersects(self, other: Roi) -> bool:
        return not self.intersect(other).empty

    def grow(self, low: Number = 0, high: Number = 0) -> Roi:
        """Larger by low before its begin and by high after its end; smaller by what is negative."""
        return Roi(self._offset - low, self._shape + low + high)

    def shift(self, by: Number) -> Roi:
        return Roi(self._offset + by, self._shape)

    __add__ = shift

    def __sub__(self, by: Number) -> Roi:
        return Roi(self._offset - by, self._shape)

    def __mul__(self, by: Number) -> Roi:
        return Roi(self._offset * by, self._shape * by)

    def __floordiv__(self, by: Number) -> Roi:
        """In larger units, as in voxels of that size. What does not divide is rounded down, as in funlib.geometry."""
        return Roi(self._offset // by, self._shape // by)

    __truediv__ = __floordiv__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Roi):
            return NotImplemented
        return (self._offset, self._shape) == (other._offset, other._shape)

    def __hash__(self) -> int:
        return hash((self._offset, self._shape))

    def __repr__(self) -> str:
        return f"Roi({tuple(self._offset)}, {tuple(self._shape)})"
