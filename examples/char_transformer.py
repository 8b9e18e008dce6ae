"""A small transformer writes like the Python language reference: `python examples/char_transformer.py --seed 1`.

Shapes: B batch, T context, D width, V alphabet.
"""

import argparse
import math
from pydoc_data.topics import topics  # half a million characters that come with every Python

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import labkit

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 64, 4, 2, 32

flags = argparse.ArgumentParser(description=__doc__)
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--lr", type=float, default=4e-3)
flags.add_argument("--epochs", type=int, default=10)
args = flags.parse_args()

# data: windows of the text, each character to be foretold from those before it
text = "".join(topics.values())
alphabet = sorted(set(text))
codes = torch.tensor([alphabet.index(char) for char in text])
cut = len(codes) * 9 // 10
windows = codes[:cut].unfold(0, CONTEXT + 1, CONTEXT)  # (N, T + 1)
held_out = codes[cut:].unfold(0, CONTEXT + 1, CONTEXT)[::4]


class Block(nn.Module):
    """Attention to what came before, then a perceptron."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.heads, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = self.heads(self.norms[0](x)).unflatten(2, (3 * HEADS, -1)).transpose(1, 2)  # (B, 3 heads, T, D / heads)
        mixed = F.scaled_dot_product_attention(*heads.chunk(3, dim=1), is_causal=True)
        x = x + self.joined(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    """Logits (B, T, V) of the next character after each of (B, T)."""

    def __init__(self):
        super().__init__()
        self.characters, self.places = nn.Embedding(len(alphabet), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(alphabet)))

    def forward(self, x):
        return self.out(self.blocks(self.characters(x) + self.places.weight))


def loss_of(model, windows):
    windows = windows.to(device)
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def bits_per_character(model):
    return loss_of(model, held_out).item() / math.log(2)


torch.manual_seed(args.seed)
device = labkit.device()
model = Transformer().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
loader = DataLoader(windows, batch_size=BATCH, shuffle=True)

with labkit.Run(
    "char-transformer",
    target="bits_per_character <= 3",
    evaluate_every=1600,
    seed=args.seed,
    config={"lr": args.lr, "context": CONTEXT, "width": WIDTH, "layers": LAYERS},
) as run:
    run.keep(model=model, optimizer=optimizer)
    for _ in run.epochs(args.epochs):
        for batch in run.batches(loader):
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, samples=len(batch))
            if run.due:
                run.evaluate(bits_per_character=bits_per_character(model))
