"""What an operator was called with, as the profiler writes it down, and what a call has to do."""

from __future__ import annotations

import ast
from math import prod
from typing import Any, NamedTuple

ELEMENT_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "long": 8, "int": 4, "short": 2,
    "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
"""Of a tensor's elements, by the C++ type that the profiler writes down."""
LIST = "TensorList"
"""What the profiler writes in place of the type of a list of tensors."""
LIST_ELEMENT_BYTES = 4
"""Of the elements of a list's tensors, whose type it does not write down: taken as float, as parameters are."""


class Work(NamedTuple):
    """What one call has to do at least."""

    flop: int
    bytes: int


class Inputs(NamedTuple):
    """What an operator was called with: one entry an argument."""

    shapes: list
    """Sizes of a tensor; a list of such for a list of tensors; empty for anything else"""
    types: list[str]
    values: list[str]
    """What is no tensor, as text"""

    def size(self, place: int) -> int:
        """Bytes of a tensor."""
        return prod(self.shapes[place]) * self.element(place)

    def element(self, place: int = 0) -> int:
        """Bytes of one of its elements; a KeyError where it is no tensor, or of a type that is not known."""
        return ELEMENT_BYTES[self.types[place]]

    def tensors(self) -> list[int]:
        """The places where a tensor is."""
        return [place for place, kind in enumerate(self.types) if kind in ELEMENT_BYTES]

    def elements_of_list(self, place: int = 0) -> int:
        """Of all tensors of a list; a ValueError where the profiler left out its shapes, as of more than 30."""
        if self.types[place] != LIST or not self.shapes[place]:
            raise ValueError
        return sum(map(prod, self.shapes[place]))

    def value(self, place: int) -> Any:
        """A number, a truth value or a list of them."""
        return ast.literal_eval(self.values[place])
