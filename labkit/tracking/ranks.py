"""Several processes that train one model: the first writes, and all of them end at the same step."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch.distributed


class Ranks:
    """What torch.distributed says when a run begins."""

    def __init__(self) -> None:
        self.are_several = (
            torch.distributed.is_available()
            and torch.distributed.is_initialized()
            and torch.distributed.get_world_size() > 1
        )
        self.agreed = ""
        """Why the run is over, as the first rank found at the latest evaluation"""

    def agree(self, why_over: Callable[[], str]) -> None:
        """Take the first rank's word: clocks differ, and a rank that left its loop alone would let the others hang."""
        if self.are_several:
            words = [why_over()]
            torch.distributed.broadcast_object_list(words, src=0)
            self.agreed = words[0]


def own_rank() -> int:
    """This process' rank; 0 where it is the only one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))
