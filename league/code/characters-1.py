"""A training script: a perceptron predicts the next character of Python's own documentation from the eight before it.

Shapes: B batch, T context, D width.
"""

import argparse
import math
from pydoc_data.topics import topics  # half a million characters that come with every Python

import torch
import torch.nn.functional as F
from torch import nn

import labkit

CONTEXT, WIDTH, EVERY = 8, 32, 25

flags = argparse.ArgumentParser(description=__doc__)
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--lr", type=float, default=0.5)
flags.add_argument("--steps", type=int, default=400)
flags.add_argument("--batch-size", type=int, default=256)
flags.add_argument("--bits", type=float, default=3.2, help="bits per character to reach")
args = flags.parse_args()

text = "".join(topics.values()).encode("ascii", "replace")
codes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
cut = len(codes) * 9 // 10
windows, held_out = codes[:cut].unfold(0, CONTEXT + 1, 1), codes[cut:].unfold(0, CONTEXT + 1, 20)  # (N, T + 1)

torch.manual_seed(args.seed)
layers = [nn.Embedding(128, WIDTH), nn.Flatten(), nn.Linear(CONTEXT * WIDTH, 128), nn.ReLU(), nn.Linear(128, 128)]
model = nn.Sequential(*layers).to(labkit.device())


def loss_of(rows: torch.Tensor) -> torch.Tensor:
    rows = rows.to(labkit.device())
    return F.cross_entropy(model(rows[:, :-1]), rows[:, -1])


config = {"lr": args.lr, "batch_size": args.batch_size}
with labkit.Run("characters", target=f"bits_per_character <= {args.bits}", seed=args.seed, config=config) as run:
    for step in range(1, args.steps + 1):
        loss = loss_of(windows[torch.randint(len(windows), (args.batch_size,))])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():  # SGD by hand: a first optimiser loads torch's compiler, which takes longer than this run
            for weights, gradient in zip(model.parameters(), gradients, strict=True):
                weights -= args.lr * gradient
        run.step(loss, samples=args.batch_size)
        if step % EVERY == 0:
            with torch.no_grad():
                bits = loss_of(held_out).item() / math.log(2)
            if run.evaluate(bits_per_character=bits):
                break
