"""What a function gets, for those who have not installed daisy."""

from __future__ import annotations

import enum
from typing import Optional, Tuple

from .geometry import Roi


class BlockStatus(enum.IntEnum):
    CREATED = 0
    PROCESSING = 1
    SUCCESS = 2
    FAILED = 3


class Block:
    """One block. A function that raises fails it; so does one that sets status to BlockStatus.FAILED."""

    def __init__(self, total_roi: Roi, read_roi: Roi, write_roi: Roi, task_id: Optional[str] = None, block_id: int = 0) -> None:
        # total_roi is there for those who call as daisy does, which derives the id from it.
        self.read_roi, self.write_roi, self.task_id = read_roi, write_roi, task_id
        self.block_id: Tuple[Optional[str], int] = (task_id, block_id)
        self.status: int = BlockStatus.CREATED

    def __repr__(self) -> str:
        return f"<block {self.block_id[1]} of {self.task_id}, reads {self.read_roi}, writes {self.write_roi}>"
