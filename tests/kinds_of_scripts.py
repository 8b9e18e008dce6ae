"""Texts of scripts without a `labkit.Run`, of every kind that a step of training is found in."""

LOOP = """
import os, signal, sys, time
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    loss = model(torch.rand(4, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""
PLAIN = f"""{LOOP}
print("hello from", __name__, sys.argv[1:])
for _ in range(5):
    step()
"""
TRAIN = "for _ in range(3): step()"
OTHERS = """
other = torch.nn.Linear(2, 1)
second = torch.optim.Adam(other.parameters())
def step_other(): (second.zero_grad(), other(torch.rand(4, 2)).mean().backward(), second.step())
"""
COUNTED = {
    "optimisers made anew": (6, f"""
for _ in range(2):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {TRAIN}"""),
    "clients that keep their optimisers": (12, f"""{OTHERS}
for _ in range(2):
    {TRAIN}
    for _ in range(3): step_other()"""),
    "turns": (3, f"{OTHERS}{TRAIN.replace('step()', '(step(), step_other())')}"),
    "turns, one more often": (9, f"{OTHERS}{TRAIN.replace('step()', '(step(), step(), step(), step_other())')}"),
    "in backward": (3, """
each = {p: torch.optim.SGD([p]) for p in model.parameters()}
for p in each: p.register_post_accumulate_grad_hook(lambda p: each[p].step())
for _ in range(3): model(torch.rand(4, 2)).mean().backward()"""),
    "a compiled step": (3, f"step = torch.compile(step, backend='eager')\n{TRAIN}"),
    "LBFGS": (3, """
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
def closure(): (optimizer.zero_grad(), (loss := model(torch.rand(4, 2)).mean()).backward()); return loss
for _ in range(3): optimizer.step(closure)"""),
    "an optimiser in another": (3, f"""
class Outer(torch.optim.Optimizer):
    def step(self): inner.step()
inner, optimizer = optimizer, Outer(optimizer.param_groups, {{}})
{TRAIN}"""),
    "plain": (3, TRAIN),
    "accumulation": (2, """
for _ in range(2):
    for _ in range(3): model(torch.rand(4, 2)).mean().backward()
    (optimizer.step(), optimizer.zero_grad())"""),
    "a compiled model": (3, f"model = torch.compile(model, backend='eager')\n{TRAIN}"),
    "DDP": (3, f"""
import tempfile, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(model)
{TRAIN}
dist.destroy_process_group()"""),
}  # fmt: skip
"""Steps of training, and a text that takes them after LOOP"""
AND_IN_A_CHILD = """
import subprocess
SGD = "import torch; p = torch.ones(1, requires_grad=True); p.sum().backward(); torch.optim.SGD([p]).step()"
subprocess.run([sys.executable, "-c", SGD], check=True)
"""
"""What takes a step in another process, after LOOP"""
