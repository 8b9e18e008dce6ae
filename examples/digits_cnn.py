"""A small CNN reads scikit-learn's handwritten digits: `python examples/digits_cnn.py --seed 1`."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import labkit

try:
    from sklearn.datasets import load_digits
except ImportError:
    raise SystemExit("the digits come with scikit-learn: pip install scikit-learn") from None

flags = argparse.ArgumentParser(description=__doc__)
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--lr", type=float, default=2e-3)
flags.add_argument("--epochs", type=int, default=40)
args = flags.parse_args()

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16  # (1797, 1, 8, 8)
labels = torch.tensor(digits.target)
parts = random_split(TensorDataset(images, labels), [1197, 300, 300], torch.Generator().manual_seed(0))

torch.manual_seed(args.seed)
train, validation, test = (DataLoader(part, batch_size=64, shuffle=part is parts[0]) for part in parts)
device = labkit.device()
model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 10),
).to(device)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


@torch.no_grad()
def accuracy(loader):
    model.eval()
    right = sum((model(x.to(device)).argmax(1) == y.to(device)).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


with labkit.Run("digits-cnn", target="accuracy >= 0.97", seed=args.seed, config={"lr": args.lr}) as run:
    run.keep(model=model, optimizer=optimizer)
    for _ in run.epochs(args.epochs):
        for x, y in run.batches(train):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, samples=len(y))
        run.evaluate(accuracy=accuracy(validation))
    if run.load_best():
        run.test(accuracy=accuracy(test))
