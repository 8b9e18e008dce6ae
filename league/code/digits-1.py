"""Your own loop: a small CNN learns to read handwritten digits. `python examples/digits_cnn.py --seed 1`"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import labkit

flags = argparse.ArgumentParser(description=__doc__)
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--lr", type=float, default=5e-3)
flags.add_argument("--epochs", type=int, default=20)
args = flags.parse_args()

torch.manual_seed(args.seed)
device = labkit.device()  # what the budget computes on
images, labels = map(torch.tensor, load_digits(return_X_y=True))
digits = TensorDataset(images.float().view(-1, 1, 8, 8) / 16, labels)
train, validation = random_split(digits, [1397, 400], torch.Generator().manual_seed(0))
held_out, answers = (part.to(device) for part in validation[:])
layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU()]
model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
loader = DataLoader(train, batch_size=64, shuffle=True)

with labkit.Run("digits-cnn", target="accuracy >= 0.97", seed=args.seed, config={"lr": args.lr}) as run:
    run.keep(model=model, optimizer=optimizer)  # what a resumed run gets back
    for _ in run.epochs(args.epochs):
        for x, y in run.batches(loader):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, samples=len(y))
        run.evaluate(accuracy=(model(held_out).argmax(1) == answers).float().mean().item())
