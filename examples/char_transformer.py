"""A language model of characters, trained for some seconds. `python examples/char_transformer.py --max-seconds 30`"""

import argparse

import torch

import labkit
from labkit_course.apparatus import CharTransformer, char_batch, char_text

flags = argparse.ArgumentParser(description=__doc__)
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--layers", type=int, default=4)
flags.add_argument("--width", type=int, default=64)
flags.add_argument("--batch-size", type=int, default=16)
flags.add_argument("--max-seconds", type=float, default=30)
args = flags.parse_args()

torch.manual_seed(args.seed)
device, generator = labkit.device(), torch.Generator().manual_seed(args.seed)
model = CharTransformer(args.layers, args.width).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
train, validation = char_text()
held_out = [each.to(device) for each in char_batch(validation, 128, model.context, torch.Generator().manual_seed(0))]

config = {"layers": args.layers, "width": args.width, "batch_size": args.batch_size}
with labkit.Run("char-transformer", max_seconds=args.max_seconds, seed=args.seed, config=config) as run:
    run.keep(model=model, optimizer=optimizer)
    done = False
    while not done:
        for _ in range(20):
            batch = [each.to(device) for each in char_batch(train, args.batch_size, model.context, generator)]
            loss = model.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, samples=args.batch_size)
        with torch.no_grad():
            done = run.evaluate(bits_per_character=model.loss(held_out).item() / 0.6931)
