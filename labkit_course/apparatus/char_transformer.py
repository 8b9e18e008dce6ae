"""A small language model that reads characters, the text that every Python has, and what a step of it holds."""

import argparse
import gc
import inspect
import os
import subprocess
import threading
import typing
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.errors import certain
from labkit.hardware import give_memory_back, held

VOCABULARY = 96
"""Printable characters of ASCII, and one for all others, the end of a line among them"""
LOOK_S = 5e-4
"""Seconds between two looks at what the process holds"""


class Block(nn.Module):
    """Attention of each place to those before it, then a layer of four times the width: GPT-2's, without dropout."""

    future: Tensor

    def __init__(self, width: int, heads: int, context: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("future", torch.ones(context, context).triu(1).bool())

    def forward(self, x: Tensor) -> Tensor:
        batch, places, width = x.shape  # (B, T, D)
        heads = self.qkv(self.norm1(x)).view(batch, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads  # (B, A, T, D / A) each
        scores = query @ key.transpose(2, 3) * query.shape[3] ** -0.5  # (B, A, T, T)
        shares = scores.masked_fill(self.future[:places, :places], -torch.inf).softmax(3)
        x = x + self.merge((shares @ value).transpose(1, 2).reshape(batch, places, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharTransformer(nn.Module):
    """Predicts each next character: logits (B, T, V) for characters (B, T)."""

    def __init__(self, layers: int = 4, width: int = 64, heads: int = 4, context: int = 64):
        super().__init__()
        self.context = context
        self.characters, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, context) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.run_block: Callable[[nn.Module, Tensor], Tensor] = lambda block, x: block(x)
        """How a block is run, for a step that does not keep what is inside of it"""

    def embedded(self, characters: Tensor) -> Tensor:
        """What the first block gets (B, T, D)."""
        return self.characters(characters) + self.places.weight[: characters.shape[1]]

    def forward(self, characters: Tensor) -> Tensor:
        x = self.embedded(characters)
        for block in self.blocks:
            x = self.run_block(block, x)
        return self.out(self.norm(x))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Mean cross-entropy per character, in nats."""
        return F.cross_entropy(self(batch[0]).flatten(0, 1), batch[1].flatten())


def char_text() -> tuple[Tensor, Tensor]:
    """Source text of Python's own library, as numbers below VOCABULARY: for training, and a tenth to validate."""
    text = "".join(inspect.getsource(module) for module in (argparse, inspect, subprocess, threading, typing))
    codes = torch.tensor([each - 31 if 32 <= each < 127 else 0 for each in text.encode()])
    return codes[: len(codes) * 9 // 10], codes[len(codes) * 9 // 10 :]


def char_batch(text: Tensor, batch_size: int, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random pieces of a text (B, T), and the same one character later."""
    starts = torch.randint(len(text) - context, (batch_size, 1), generator=generator)
    pieces = text[starts + torch.arange(context + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def grown_by(step: Callable[[], Any]) -> int:
    """The most bytes by which this process grows while a step is taken."""
    gc.collect()
    give_memory_back()
    pid, over = os.getpid(), threading.Event()
    before = most = certain(held(pid))

    def look() -> None:
        nonlocal most
        while not over.wait(LOOK_S):
            most = max(most, certain(held(pid)))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        step()
        most = max(most, certain(held(pid)))
    finally:
        over.set()
        watcher.join()
    return most - before
