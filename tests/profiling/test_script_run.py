"""Unchanged scripts: their steps and phases are found, and what is wrong with them is told."""

import json
import subprocess
import sys

import pytest

from labkit.errors import UserError
from labkit.profiling.profile import read_profile
from labkit.profiling.recording.recorder import StepRecorder
from labkit.profiling.recording.script_run import profile_script
from labkit.profiling.recording.settings import ProfileSettings
from labkit.runs import list_runs, read_run
from labkit.tracking.command import ScriptCommand
from labkit.tracking.stop import StopRequest

TRAIN = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    x = torch.randn(512, 64)
    loss = model(x).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print("trained to the end")
"""
SMALL = ProfileSettings(skip=2, warmup=1, steps=3, graph=False)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train it.py"
    path.write_text(TRAIN, encoding="utf-8")
    return path


def run(path, *arguments, settings=SMALL):
    command = ScriptCommand(str(path), arguments, runs_dir=str(path.parent / "runs"))
    with StopRequest() as stop:
        return profile_script(command, StepRecorder(settings), stop, lambda event: None)


def with_run(script, *, epochs="range(30)", batches="loader", head="", before=""):
    """A script with a `labkit.Run`, which trains in epochs of ten steps."""
    text = f"""
import torch, labkit
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.001)
loader = [torch.randn(512, 64) for _ in range(10)]
{head}
with labkit.Run("own", target="loss <= 0.0", config={{"lr": 0.001}}, max_seconds=0.001, patience=1) as run:
    for epoch in {epochs}:
        for x in {batches}:
            {before}
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
    script.write_text(text, encoding="utf-8")
    return script


@pytest.mark.parametrize(
    "own", [{}, {"batches": "run.batches(loader)"}, {"epochs": "run.epochs(1)", "batches": "run.batches(loader)"}]
)
def test_a_script_with_a_run_of_its_own_has_one_folder_and_its_steps(script, own):
    folder, notes = run(with_run(script, **own))
    assert notes == [] and list((script.parent / "runs").iterdir()) == [folder]
    record = read_run(folder)
    assert record.status == "done" and record.profiled and record.config["job"] == "own"
    assert record.result["ended_by"] == "profiled" and record.result["steps"] == (
        SMALL.skip + SMALL.warmup + SMALL.steps + SMALL.graph
    )
    assert list_runs(script.parent / "runs")["profiled"].all()
    profile = read_profile_without_card(folder)
    found = profile.time.phase_us()
    assert profile.time.steps == SMALL.steps
    assert min(found["forward"], found["backward"], found["optimiser"]) > 0
    assert (found["input"] > 0) == ("batches" in own)
    in_forward = profile.time.events.query("name == 'aten::addmm' and phase == 'forward'")
    assert len(in_forward) / profile.time.steps == 2


def test_run_step_ends_a_step_of_several_optimiser_steps(script):
    more = "model(x).square().mean().backward(); optimiser.step(); optimiser.zero_grad()"
    folder, _ = run(with_run(script, before=more))
    operators = read_profile_without_card(folder).time.operators.set_index("operator")["calls"]
    assert operators["aten::addmm"] == 4


def test_phases_that_a_script_names_are_believed_and_words_of_its_own_do_no_harm(script):
    text = with_run(script, batches="run.batches(loader)").read_text()
    named = text.replace("loss = model(x)", 'with run.phase("my words"): model(x)\n            loss = model(x)')
    script.write_text(named)
    folder, _ = run(script)
    profile = read_profile_without_card(folder)
    assert profile.time.phase_us()["forward"] > 0
    assert (profile.trace.events["name"] == "my words").sum() == SMALL.steps
    script.write_text(text.replace("loss = model(x)", 'with run.phase("forward"): loss = model(x)'))
    found = read_profile_without_card(run(script)[0]).time.phase_us()
    assert found["forward"] > 0 and found["backward"] == 0 and found["other"] > 0 and found["input"] > 0


def test_a_run_that_ends_before_the_schedule_keeps_the_steps_there_were(script):
    folder, notes = run(with_run(script, epochs="range(1)"), settings=ProfileSettings(skip=2, warmup=1, steps=30))
    assert notes == ["the script ended after 10 steps: 7 are recorded"]
    assert read_profile_without_card(folder).time.steps == 7


def test_a_script_with_several_runs_is_profiled_in_its_first(script):
    text = with_run(script, epochs="range(1)").read_text()
    script.write_text(text + text.partition("loader = ")[2].partition("\n")[2])
    folder, _ = run(script, settings=ProfileSettings(skip=2, warmup=1, steps=30))
    assert list((script.parent / "runs").iterdir()) == [folder] and read_run(folder).result["steps"] == 10


def test_a_run_whose_script_catches_everything_is_ended_all_the_same(script):
    text = with_run(script, epochs="run.epochs(1)", batches="run.batches(loader)").read_text()
    step = "run.step(loss, samples=len(x))"
    caught = f"try: {step}\n            except BaseException: pass"
    script.write_text(text.replace(step, caught))
    folder, notes = run(script)
    assert notes == [] and read_run(folder).result["ended_by"] == "profiled"
    assert read_profile_without_card(folder).time.steps == SMALL.steps


def test_steps_and_phases_of_an_unchanged_script(script, capfd):
    folder, notes = run(script, "50")
    profile = read_profile_without_card(folder)
    assert profile.time.steps == 3
    assert set(profile.phases["phase"]) >= {"between steps", "forward", "backward", "optimiser"}
    share = profile.phases.set_index("phase")["share"]
    assert share.sum() == pytest.approx(1)
    assert notes == []
    assert "trained to the end" not in capfd.readouterr().out  # it is ended once all is recorded
    record = read_run(folder)
    assert record.profiled and record.status == "done" and record.config["script"] == str(script)


def read_profile_without_card(folder):
    """The card takes seconds to measure, and nothing here needs it."""
    from labkit.hardware.calibration import Calibration
    from labkit.profiling.profile import save_card

    save_card(folder, Calibration("some CPU", 1, 100.0, 100.0, 10.0, 1.0, "2026-11-22"))
    return read_profile(folder)


def test_a_script_that_ends_early_keeps_the_steps_there_were(script):
    folder, notes = run(script, "5")
    assert notes == ["the script ended after 5 steps: 2 are recorded"]
    assert read_profile_without_card(folder).time.steps == 2


def test_too_few_steps_are_refused_with_what_to_do(script):
    with pytest.raises(UserError, match=r"after 2 steps, and recording begins at step 4: .*--skip"):
        run(script, "2")


def test_a_script_without_an_optimiser_is_refused(script):
    script.write_text("print('nothing')\n", encoding="utf-8")
    with pytest.raises(UserError, match="no optimiser of torch had stepped"):
        run(script)
    script.write_text("import sys\nsys.exit(4)\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"sys.exit\(4\) before its first step"):
        run(script)


def test_an_error_of_the_script_is_shown_and_recorded(script, capfd):
    script.write_text(TRAIN + "raise RuntimeError('no disk')\n", encoding="utf-8")
    with pytest.raises(UserError, match="RuntimeError: no disk"):
        run(script, "1")
    assert "Traceback" in capfd.readouterr().err
    (folder,) = (script.parent / "runs").iterdir()
    assert read_run(folder).status == "failed"
    with pytest.raises(UserError, match=r"this run failed .*no disk"):
        read_profile(folder)


def test_two_optimisers_make_one_step(script):
    two = TRAIN.replace("lr=0.01)\n", "lr=0.01)\nother = torch.optim.Adam(model[0].parameters())\n")
    script.write_text(
        two.replace("    optimiser.step()\n", "    optimiser.step()\n    other.step()\n"), encoding="utf-8"
    )
    folder, _ = run(script, "50")
    operators = read_profile_without_card(folder).time.operators.set_index("operator")["calls"]
    assert operators["aten::addmm"] == 2  # of two layers


def test_torch_is_left_as_it_was(script):
    import torch
    from torch.nn.modules import module

    before = torch.autograd.backward
    run(script, "50")
    assert torch.autograd.backward is before
    assert not module._global_forward_hooks and not module._global_forward_pre_hooks
    assert sys.argv[0] != str(script)


def test_a_missing_script_is_named(tmp_path):
    with pytest.raises(UserError, match=r"there is no such script"):
        run(tmp_path / "none.py")


def test_the_command_passes_arguments_on_and_answers_in_json(script):
    command = [
        sys.executable,
        "-m",
        "labkit",
        "profile",
        "run",
        "--skip",
        "2",
        "--steps",
        "3",
        "--json",
        "--budget",
        "one-core",
    ]
    answer = subprocess.run([*command, str(script), "50", "--more"], capture_output=True, text=True, cwd=script.parent)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["steps"] == 3 and found["unprofiled_step_us"] > 0
    assert read_run(script.parent / found["folder"]).config["arguments"] == ["50", "--more"]
    for noise in ("USDT", "Execution Trace Observer"):
        assert noise not in answer.stderr


STYLES = {
    "record_function around the model": """
with torch.profiler.record_function("model_inference"):
    loss = model(x).square().mean()
loss.backward()
optimiser.step()
optimiser.zero_grad()
""",
    "gradients accumulated": """
for part in x.chunk(4):
    part = (part * 2 - part).sin().asin()
    model(part).square().mean().backward()
optimiser.step()
optimiser.zero_grad()
""",
    "a transform of the data that is a module": """
x = torch.nn.Softplus()(x)
model(x).square().mean().backward()
optimiser.step()
optimiser.zero_grad()
""",
    "an evaluation in between": """
with torch.no_grad():
    model(x)
model(x).square().mean().backward()
optimiser.step()
optimiser.zero_grad()
""",
    "a closure": """
def closure():
    optimiser.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss
optimiser.step(closure)
""",
    "another thread with a model of its own": """
other = threading.Thread(target=lambda: small(torch.ones(4, 8)).sum().backward())
other.start()
model(x).square().mean().backward()
optimiser.step()
optimiser.zero_grad()
other.join()
""",
}
HEAD = """
import threading, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
small = torch.nn.Linear(8, 8)
optimiser = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(50):
    x = torch.randn(512, 64)
"""


@pytest.mark.parametrize("style", STYLES)
def test_phases_add_up_however_a_script_is_written(style, script):
    body = "".join(f"    {line}\n" for line in STYLES[style].strip().splitlines())
    script.write_text(HEAD + body, encoding="utf-8")
    folder, _ = run(script)
    profile = read_profile_without_card(folder)
    found = profile.time.phase_us()
    assert sum(found.values()) == pytest.approx(profile.time.step_us)
    assert min(found.values()) >= 0
    # the model's four products dwarf the making of a batch
    assert found["forward"] > 0 and found["backward"] > 0 and found["optimiser"] > 0
    assert profile.time.operators["self_us"].sum() == pytest.approx(profile.time.step_us)
    assert profile.time.operators["self_us"].min() >= 0
    in_forward = profile.time.events.query("name == 'aten::addmm' and phase == 'forward'")
    assert len(in_forward) / profile.time.steps == (8 if style == "gradients accumulated" else 2)
    products = profile.time.events.query("name == 'aten::mm'")
    assert (products["phase"] == "backward").all()


def test_numbers_read_after_the_optimiser_are_sync_and_a_loader_is_input(script):
    text = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(64, 1)
optimiser = torch.optim.SGD(model.parameters(), lr=0.001)
loader = DataLoader(TensorDataset(torch.randn(10_000, 64)), batch_size=256)
for (x,) in loader:
    out = model(x)
    out.square().mean().backward()
    optimiser.step()
    optimiser.zero_grad()
    right = sum(value.item() > 0 for value in out.detach().flatten())
"""
    script.write_text(text, encoding="utf-8")
    folder, _ = run(script)
    found = read_profile_without_card(folder).time.phase_us()
    assert found["input"] > 0
    assert found["sync"] > 0.1 * sum(found.values())


def test_a_script_that_profiles_itself_is_refused(script, capfd):
    body = TRAIN.replace("for step in", "profiler = torch.profiler.profile()\nprofiler.start()\nfor step in")
    script.write_text(body, encoding="utf-8")
    with pytest.raises(UserError, match="a profiler of its own"):
        run(script, "50")


def test_a_script_that_catches_everything_is_ended_all_the_same(script):
    text = TRAIN.replace(
        "    optimiser.step()\n", "    try:\n        optimiser.step()\n    except BaseException:\n        pass\n"
    )
    script.write_text(text, encoding="utf-8")
    folder, notes = run(script, "30")
    assert notes == []
    assert read_profile_without_card(folder).time.steps == SMALL.steps


def test_the_status_of_a_script_that_exits_early_is_told(script):
    exits = TRAIN.replace("range(int(sys.argv[1])):", "range(50):\n    if step == 5: sys.exit(int(sys.argv[1]))")
    script.write_text(exits, encoding="utf-8")
    _, notes = run(script, "0")
    assert notes == ["the script ended by sys.exit(0) after 5 steps: 2 are recorded"]
    with pytest.raises(UserError, match=r"the script ended by sys.exit\(3\), so nothing is said"):
        run(script, "3")
