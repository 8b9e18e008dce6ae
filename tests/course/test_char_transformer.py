"""The language model of lab 35: what the lab's account says of a step of it is what autograd and the process hold."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from labkit.project import VERSION
from labkit.runs import read_run, run_folders
from labkit_course.apparatus import VOCABULARY, CharTransformer, char_batch, char_text, grown_by
from labkit_course.lab import from_lab

EXAMPLE = Path(__file__).parents[2] / "examples" / "char_transformer.py"


class Step(nn.Module):
    """All that a training step keeps, as one layer."""

    def __init__(self, model, answers):
        super().__init__()
        self.model, self.answers = model, answers

    def forward(self, characters):
        return self.model.loss((characters, self.answers))


@pytest.mark.parametrize(("layers", "width", "heads", "context"), [(4, 64, 4, 64), (2, 32, 2, 96), (1, 128, 8, 32)])
def test_the_account_is_what_the_model_has_and_keeps(layers, width, heads, context):
    model = CharTransformer(layers, width, heads, context)
    characters, answers = char_batch(char_text()[0], 8, context, torch.Generator().manual_seed(0))
    parameters, kept, operations = from_lab("35", "account")(layers, width, heads, context, VOCABULARY)
    assert parameters == sum(each.numel() for each in model.parameters())
    (saved,) = from_lab("35", "saved_by_layer")([Step(model, answers)], characters)
    # means and deviations of norms, masks and characters come on top
    assert 4 * kept * characters.numel() == pytest.approx(saved, rel=0.03) and saved > 4 * kept * characters.numel()
    with FlopCounterMode(display=False) as counter:
        model.loss((characters, answers)).backward()
    assert operations * characters.numel() == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_checkpointing_keeps_what_blocks_get_and_changes_no_gradient():
    batch = char_batch(char_text()[0], 4, 64, torch.Generator().manual_seed(0))
    model, gradients, saved = CharTransformer(), [], []
    for run_block in (model.run_block, from_lab("35", "Again").apply):
        model.run_block = run_block
        saved += from_lab("35", "saved_by_layer")([Step(model, batch[1])], batch[0])
        model.zero_grad()
        model.loss(batch).backward()
        gradients.append([each.grad.clone() for each in model.parameters()])
    assert all(map(torch.equal, *gradients)) and saved[1] < saved[0] / 6


def test_each_character_sees_only_those_before_it():
    model, (characters, _) = CharTransformer(), char_batch(char_text()[0], 2, 64, torch.Generator().manual_seed(0))
    changed = characters.clone()
    changed[:, 40] = (changed[:, 40] + 1) % VOCABULARY
    differs = (model(characters) != model(changed)).any(dim=2)
    assert not differs[:, :40].any() and differs[:, 40].all()


def test_the_text_is_there_and_is_split():
    train, validation = char_text()
    assert len(train) > 8 * len(validation) > 200_000 and int(train.min()) >= 0 and int(train.max()) < VOCABULARY


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what a process holds as Linux shows it")
def test_what_a_process_grows_by_is_seen_even_if_it_is_freed_at_once():
    grown = grown_by(lambda: torch.ones(64 << 18).sum())  # 64 MiB
    assert 60 << 20 < grown < 100 << 20


def test_the_example_trains_and_can_be_resumed(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli("run", EXAMPLE, "--max-seconds", "2", "--batch-size", "4", "--width", "16")
    (folder,) = run_folders("runs")
    record = read_run(folder)
    assert record.result["ended_by"] == "max_seconds" and record.result["steps"] >= 20
    assert record.provenance.by == f"labkit {VERSION}"
