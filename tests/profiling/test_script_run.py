"""Unchanged scripts: their steps and phases are found, and what is wrong with them is told."""

import gzip
import json
import runpy
import subprocess
import sys

import pytest
import torch
from kinds_of_scripts import AND_IN_A_CHILD
from torch._dynamo import utils as dynamo
from torch.nn.modules import module

from labkit.errors import UserError
from labkit.hardware import Calibration
from labkit.perfmodel.whatif import captured_steps
from labkit.profiling.capture import StepRecorder, save_limits
from labkit.profiling.profile import read_profile
from labkit.profiling.script_steps import profile_script
from labkit.profiling.tools import ProfileSettings
from labkit.runs import read_run
from labkit.tracking import ScriptCommand, StopRequest

HEAD = """
import sys, threading, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.001)
"""
TRAIN = f"""{HEAD}
for step in range(int(sys.argv[1])):
    x = torch.randn(512, 64)
    model(x).square().mean().backward()
    optimiser.step()
    optimiser.zero_grad()
print("trained to the end")
"""
# in epochs of ten steps
WITH_RUN = f"""{HEAD}
import labkit
loader = [torch.randn(512, 64) for _ in range(10)]
with labkit.Run("own", target="loss <= 0.0", config={{"lr": 0.001}}, max_seconds=0.001, patience=1) as run:
    for epoch in range(30):
        for x in loader:
            loss = model(x).square().mean()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            run.step(loss, samples=len(x))
        with torch.no_grad():
            model(x)
        if run.evaluate(loss=loss.item()):
            break
    if run.load_best():
        run.test(loss=0.0)
"""
BATCHES, ONE_EPOCH = ("in loader", "in run.batches(loader)"), ("range(30)", "range(1)")
pytestmark = pytest.mark.usefixtures("no_sampler")
SMALL = ProfileSettings(skip=2, warmup=1, steps=3)
LONG = ProfileSettings(skip=2, warmup=1, steps=30)
PRODUCT = "name == 'aten::addmm'"


def changed(text, *changes):
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture
def run(tmp_path):
    """Profiles a script with such a text: the run's folder, and what its user should know."""

    def run(text, *arguments, settings=SMALL):
        path = tmp_path / "train it.py"
        path.write_text(text, encoding="utf-8")
        command = ScriptCommand(str(path), arguments, runs_dir=str(tmp_path / "runs"))
        with StopRequest() as stop:
            return profile_script(command, StepRecorder(settings), stop, lambda event: None)

    return run


def profile_of(folder):
    save_limits(folder, Calibration("some CPU", 1, 100.0, 100.0, 10.0, 1.0, "2026-11-22"))  # measuring takes seconds
    return read_profile(folder)


@pytest.mark.parametrize("own", [[], [("range(30)", "run.epochs(1)"), BATCHES]])
def test_a_script_with_a_run_of_its_own_has_one_folder_and_its_steps(run, own):
    folder, notes = run(changed(WITH_RUN, *own))
    assert notes == [] and list(folder.parent.iterdir()) == [folder]
    record, profile = read_run(folder), profile_of(folder)
    assert record.status == "done" and record.profiled and record.config["job"] == "own"
    assert record.result["ended_by"] == "profiled" and record.result["steps"] == 7  # with that of the graph
    found = profile.time.phase_us
    assert profile.time.steps == 3
    assert min(found["forward"], found["backward"], found["optimiser"]) > 0
    assert (found["input"] > 0) == (BATCHES in own)
    assert len(profile.time.events.query(f"{PRODUCT} and phase == 'forward'")) / 3 == 2


@pytest.mark.parametrize(
    ("text", "products"),
    [
        # run.step ends the step, not the optimiser's
        (changed(WITH_RUN, ("in loader:", "in loader:\n            model(x).mean().backward(); optimiser.step()")), 4),
        # of two optimisers, the first one's
        (changed(TRAIN, ("lr=0.001)\n", "lr=0.001)\nother = torch.optim.Adam(model[0].parameters())\n"),
                 ("optimiser.step()", "optimiser.step(); other.step()")), 2),
        # what catches everything is ended all the same
        (changed(TRAIN, ("    optimiser.step()", "    try: optimiser.step()\n    except BaseException: pass")), 2),
    ],
    ids=["run.step", "two optimisers", "caught"],
)  # fmt: skip
def test_a_step_is_what_the_script_means_by_it(run, text, products):
    folder, notes = run(text, "30")
    time = profile_of(folder).time
    assert notes == [] and time.steps == 3
    assert len(time.events.query(PRODUCT)) / 3 == products


UPDATE = ("    optimiser.step()", "    update()")
FUNCTION = ("model(x).square().mean().backward()", "loss(x).backward()")
WHOLE = f"""{HEAD}
@torch.compile(backend="eager")
def step(x):
    model(x).square().mean().backward()
    optimiser.step()
    optimiser.zero_grad()
for _ in range(30): step(torch.randn(512, 64))
"""
IN_BACKWARD = f"""{HEAD}
each = {{p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}}
for p in each: p.register_post_accumulate_grad_hook(lambda p: each[p].step() or each[p].zero_grad())
for _ in range(30): model(torch.randn(512, 64)).square().mean().backward()
"""
GAN = changed(
    TRAIN, ("for step", "other = torch.optim.Adam(model[0].parameters())\nfor step"),
    ("optimiser.step()", "optimiser.step(); model(x).mean().backward(); other.step()"),
)  # fmt: skip
FOLDS = changed(
    TRAIN, ("    x =", "    if step % 2 == 0: optimiser = torch.optim.SGD(model.parameters(), lr=0.001)\n    x =")
)
DDP = changed(
    TRAIN,
    ("for step", """import os, tempfile, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + os.path.join(tempfile.mkdtemp(), "f"), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(model)
for step"""),
)  # fmt: skip


def compiled(how, *changes):
    return changed(TRAIN, ("for step", f"{how}\nfor step"), *changes)


KINDS = {  # text, products of a step's forward passes, phases that take time
    "plain": (TRAIN, 2),
    "a compiled model": (compiled("model = torch.compile(model, backend='eager')"), 2),
    "one compiled as a whole": (compiled("model = torch.compile(model, backend='eager', fullgraph=True)"), 2),
    "a compiled loss": (
        compiled("loss = torch.compile(lambda x: model(x).square().mean(), backend='aot_eager')", FUNCTION), 2),
    "a compiled optimiser": (
        compiled("update = torch.compile(lambda: optimiser.step(), backend='eager')", UPDATE),
        2),
    "a compiled step": (WHOLE, 0),
    "a traced model": (compiled("model = torch.jit.trace(model, torch.randn(512, 64))"), 2),
    "steps in backward": (IN_BACKWARD, 2),
    "turns": (GAN, 4),
    "folds": (FOLDS, 2),
    "ranks": (DDP, 2),
}  # fmt: skip


@pytest.fixture
def graphs():
    """Returns the number of graphs that torch.compile has compiled since the last call."""

    def count():
        found = stats["unique_graphs"]
        torch._dynamo.reset()
        stats.clear()
        return found

    stats = dynamo.counters["stats"]
    count()
    return count


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_phases_of_a_script_of_every_kind_which_is_ended_then_and_unchanged(
    run, tmp_path, graphs, kind, monkeypatch, capfd
):
    text, products = KINDS[kind]
    (tmp_path / "plain.py").write_text(text)
    monkeypatch.setattr(sys, "argv", ["plain.py", "6"])
    runpy.run_path(str(tmp_path / "plain.py"))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    before, call, backward = graphs(), torch.nn.Module.__call__, torch.autograd.backward
    capfd.readouterr()
    folder, notes = run(text, "30")
    assert "trained to the end" not in capfd.readouterr().out
    # torch is left as it was
    assert graphs() == before and torch.nn.Module.__call__ is call and torch.autograd.backward is backward
    assert sys.argv == ["plain.py", "6"]
    assert not module._global_forward_hooks and not module._global_forward_pre_hooks
    assert [f"compiled {before} graph" in note for note in notes] == [True] * (before > 0)
    record, time = read_run(folder), profile_of(folder).time
    assert record.profiled and record.status == "done" and record.config["script"].endswith("train it.py")
    assert time.steps == 3 and sum(time.phase_us.values()) == pytest.approx(time.step_us)
    seen = {name for name, us in time.phase_us.items() if us > 0}
    assert seen >= ({"forward", "backward", "optimiser"} if products else {"other"})
    assert "between steps" in seen or kind != "plain"
    assert len(time.events.query(f"{PRODUCT} and phase == 'forward'")) / 3 == products
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_operators_of_every_kind_of_script_are_captured_for_a_prediction(tmp_path, graphs, kind):
    (tmp_path / "train.py").write_text(KINDS[kind][0])
    captured = captured_steps(ScriptCommand(str(tmp_path / "train.py"), ("30",)), StopRequest())
    first, second = ([each.name for each in step] for step in captured.steps[:2])
    assert len(first) > 10 and (len(first) == len(second) or captured.notes)
    assert any("ran operators one by one" in note for note in captured.notes) == (graphs() > 0)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "end", ["finally:\n    sys.exit(status)", "except BaseException as e:\n    raise RuntimeError('cleaned') from e"]
)
def test_a_late_exit_keeps_what_was_recorded(run, end):
    loop = "".join(f"    {line}\n" for line in changed(TRAIN, (HEAD, ""), ("int(sys.argv[1])", "30")).splitlines())
    folder, notes = run(f"{HEAD}status = 1\ntry:\n{loop}    status = 0\n{end}\n")
    assert notes == [] and profile_of(folder).time.steps == 3


def test_phases_that_a_script_names_are_believed_and_words_of_its_own_do_no_harm(run):
    words = ("            loss = model", '            with run.phase("my words"): model(x)\n            loss = model')
    named = ("loss = model(x)", 'with run.phase("forward"): loss = model(x)')
    profile = profile_of(run(changed(WITH_RUN, BATCHES, words, named))[0])
    assert (profile.trace.events["name"] == "my words").sum() == 3
    found = profile.time.phase_us
    assert found["forward"] > 0 and found["other"] > 0 and found["input"] > 0
    assert found["backward"] > 0 and found["optimiser"] > 0, "torch's own rows name them"


EXITS = changed(TRAIN, ("range(int(sys.argv[1])):", "range(50):\n    if step == 5: sys.exit(int(sys.argv[1]))"))
TWO_RUNS = changed(WITH_RUN, ONE_EPOCH) + changed(WITH_RUN, ONE_EPOCH).partition("loader = ")[2].partition("\n")[2]


@pytest.mark.parametrize(
    ("text", "argument", "note", "steps"),
    [
        (TRAIN, "5", "the script ended after 5 steps: 2 were recorded", 2),
        (EXITS, "0", "the script ended by sys.exit(0) after 5 steps: 2 were recorded", 2),
        (TWO_RUNS, "", None, 7),  # the first of several runs counts
    ],
)
def test_what_ends_early_keeps_the_steps_there_were(run, text, argument, note, steps):
    folder, notes = run(text, argument, settings=LONG)
    assert note is None or notes == [note]
    assert list(folder.parent.iterdir()) == [folder] and profile_of(folder).time.steps == steps


IN_A_CHILD = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 1: pass"])
"""


def test_steps_in_other_processes_are_named_next_to_those_that_were_recorded(run, tmp_path):
    text = TRAIN.replace("for step", f"{AND_IN_A_CHILD}for step")
    folder, notes = run(text, "50")
    assert profile_of(folder).time.steps == 3
    assert notes[0].startswith("profiled; steps in other processes that the script started are not counted")
    command = ScriptCommand(str(tmp_path / "train it.py"), ("50",))
    with StopRequest() as stop:
        assert captured_steps(command, stop).notes[0].startswith("profiled; steps in other processes")


def test_what_cannot_be_profiled_is_refused_with_what_to_do(run, tmp_path, capfd):
    for text, argument, words in (
        (TRAIN, "2", r"after 2 steps, and recording begins at step 4: .*--skip"),
        ("print('nothing')\n", "", "before any optimiser"),
        (IN_A_CHILD, "", "before any optimiser.*steps in other processes that the script started are not counted"),
        ("import sys\nsys.exit(4)\n", "", r"sys.exit\(4\) before its first step"),
        (EXITS, "3", r"the script ended by sys.exit\(3\), so its steps are not"),
        (f"import torch\ntorch.profiler.profile().start()\n{TRAIN}", "50", "starts its own profiler"),
        (TRAIN + "raise RuntimeError('no disk')\n", "1", "RuntimeError: no disk"),
    ):
        with pytest.raises(UserError, match=words):
            run(text, argument)
    assert "Traceback" in capfd.readouterr().err
    with pytest.raises(UserError, match=r"this run failed .*no disk"):
        read_profile(max((tmp_path / "runs").iterdir(), key=lambda folder: folder.stat().st_mtime_ns))


def test_the_command_passes_arguments_on_and_answers_in_json(tmp_path):
    (tmp_path / "train it.py").write_text(TRAIN)
    command = [sys.executable, "-m", "labkit", "profile", "run", "--skip", "2", "--steps", "3", "--json"]
    command += ["--budget", "one-core", "train it.py", "50", "--more"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert answer.returncode == 0 and "USDT" not in answer.stderr and "Observer" not in answer.stderr, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["steps"] == 3 and found["unprofiled_step_us"] > 0
    graph = (tmp_path / found["folder"] / "trace" / "graph.json.gz").read_bytes()
    assert json.loads(gzip.decompress(graph))["nodes"]
    assert read_run(tmp_path / found["folder"]).config["arguments"] == ["50", "--more"]


STYLES = {
    "gradients accumulated": (8, """
for part in x.chunk(4):
    part = (part * 2 - part).sin().asin()
    model(part).square().mean().backward()
optimiser.step()
"""),
    "a transform and an evaluation": (2, """
x = torch.nn.Softplus()(x)
with torch.no_grad():
    model(x)
model(x).square().mean().backward()
optimiser.step()
"""),
    "a closure": (2, """
def closure():
    loss = model(x).square().mean()
    loss.backward()
    return loss
optimiser.step(closure)
"""),
    "another thread with a model of its own": (2, """
small = torch.nn.Linear(8, 8)
other = threading.Thread(target=lambda: small(torch.ones(4, 8)).sum().backward())
other.start()
model(x).square().mean().backward()
optimiser.step()
other.join()
"""),
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_phases_add_up_however_a_script_is_written(style, run):
    products, text = STYLES[style]
    body = "".join(f"    {line}\n" for line in [*text.strip().splitlines(), "optimiser.zero_grad()"])
    folder, _ = run(f"{HEAD}for _ in range(50):\n    x = torch.randn(512, 64)\n{body}")
    time = profile_of(folder).time
    found = time.phase_us
    assert sum(found.values()) == pytest.approx(time.step_us) and min(found.values()) >= 0
    assert found["forward"] > 0 and found["backward"] > 0 and found["optimiser"] > 0
    assert time.operators["self_us"].sum() == pytest.approx(time.step_us) and time.operators["self_us"].min() >= 0
    assert len(time.events.query(f"{PRODUCT} and phase == 'forward'")) / time.steps == products
    assert (time.events.query("name == 'aten::mm'")["phase"] == "backward").all()


def test_numbers_read_after_the_optimiser_are_sync_and_a_loader_is_input(run):
    folder, _ = run(f"""{HEAD}
from torch.utils.data import DataLoader, TensorDataset
for (x,) in DataLoader(TensorDataset(torch.randn(10_000, 64)), batch_size=256):
    out = model(x)
    out.square().mean().backward()
    optimiser.step()
    optimiser.zero_grad()
    right = sum(value.item() > 0 for value in out.detach().flatten())
""")
    time = profile_of(folder).time
    found, reads = time.phase_us, time.events.query("name == 'aten::item'")
    # with the loop around them
    assert found["input"] > 0 and found["sync"] > reads["duration_us"].sum() / time.steps > 0
