"""What students write in 20_train_speech to train: the loss, a check that a model can learn, reading, and the loop.

Shapes: B batch, T frames, T' outputs, V alphabet with the blank (0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.data.speech import Batch
from labkit_course.apparatus import WatchedRun
from labkit_course.exercises.n20_decoding import greedy
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- something small to train


class _Recogniser(nn.Module):
    """Writes an output for every two frames, of which it sees no others."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(2)
        self.dropout, self.characters = nn.Dropout(dropout), nn.Linear(2 * 3, 6)
        self.seen: list[tuple[bool, bool, int]] = []
        """Of each forward pass whether it was for training, whether it kept a gradient, of how many utterances"""

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        self.seen.append((self.training, torch.is_grad_enabled(), len(features)))
        pairs = features[:, : features.shape[1] // 2 * 2].reshape(len(features), -1, 6)
        return self.characters(self.dropout(pairs)).log_softmax(2), lengths // 2


def _batch(seed: int, utterances: int = 3, noise: float = 0.0) -> Batch:
    """Utterances of unlike length whose features name the character that is said; `noise` fills the padding."""
    generator = torch.Generator().manual_seed(seed)
    token_lengths = torch.arange(utterances) % 3 + 2
    tokens = torch.randint(1, 6, (utterances, 4), generator=generator) * (torch.arange(4) < token_lengths[:, None])
    lengths = 4 * token_lengths + 2
    features = torch.zeros(utterances, 24, 3)
    for row, said in zip(features, tokens, strict=True):
        for place, token in enumerate(said[said > 0].tolist()):
            row[4 * place : 4 * place + 2] = torch.tensor([token & 1, token >> 1 & 1, token >> 2], dtype=torch.float32)
    padding = torch.arange(24) >= lengths[:, None]  # (B, T)
    features += noise * padding.unsqueeze(2) * torch.randn(features.shape, generator=generator)
    texts = ["".join(" abcdef"[one] for one in said if one) for said in tokens.tolist()]
    return Batch(features, lengths, tokens, token_lengths, texts)


# --- the loss


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    log_probabilities, lengths = model(batch.features, batch.feature_lengths)  # (B, T', V)
    return F.ctc_loss(log_probabilities.transpose(0, 1), batch.tokens, lengths, batch.token_lengths)


_OF_PADDING = (", lengths, ", ", torch.full_like(lengths, log_probabilities.shape[1]), ")


def _gradient_of_loss(code: Any) -> Tensor:
    model = _Recogniser()
    code(model, _batch(4)).backward()
    return model.characters.weight.grad


LOSS = WrittenExercise(
    loss_of,
    module="speech",
    cases=(
        Case("three utterances of unlike length", lambda code: code(_Recogniser(), _batch(1))),
        Case("the same with noise for padding", lambda code: code(_Recogniser(), _batch(1, noise=3.0))),
        Case("one utterance", lambda code: code(_Recogniser(), _batch(2, 1))),
        Case("the gradient", _gradient_of_loss),
    ),
    mistakes={
        _OF_PADDING: "Padding is trained on: give ctc_loss the lengths that the model returns.",
        ("batch.token_lengths)", 'batch.token_lengths, reduction="sum")'): (
            "The mean over the batch, as ctc_loss gives it by default."
        ),
        (".transpose", ".exp().transpose"): "ctc_loss takes logarithms, which the model returns already.",
        ("batch.token_lengths)", "batch.token_lengths, blank=5)"): "The blank has id 0, which is ctc_loss's default.",
    },
    hint="F.ctc_loss(log_probabilities, tokens, lengths, token_lengths): it wants the outputs first, (T', B, V), so "
    "transpose; lengths are those that the model returns with them.",
    explanation="The same with any padding, so none is trained on.",
)

# --- can it learn at all?


def overfit(model: nn.Module, batch: Batch, steps: int, lr: float) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def _learnt(code: Any, steps: int) -> dict[str, Any]:
    model = _Recogniser()
    losses = code(model, _batch(1), steps, 0.05)
    return {
        "losses": len(losses),
        "of them floats": sum(isinstance(each, float) for each in losses),
        "passes of a model that trains": sum(training for training, _, _ in model.seen),
        "each": losses,
    }


OVERFIT = WrittenExercise(
    overfit,
    module="speech",
    cases=(
        Case("six steps on three utterances", lambda code: _learnt(code, 6), 1e-3),
        Case("no step", lambda code: _learnt(code, 0)),
        Case("30 steps", lambda code: code(_Recogniser(), _batch(3), 30, 0.05)[-1], 1e-2),
    ),
    mistakes={
        ("optimizer.zero_grad()", "pass"): "Gradients add up from step to step: clear them after each (zero_grad).",
        ("optimizer.step()", "pass"): (
            "The weights stay as they are: optimizer.step() comes after backward, and before the gradients are cleared."
        ),
        ("optimizer.step()", "torch.optim.Adam(model.parameters(), lr=lr).step()"): (
            "Make the optimiser once: a new one at each step has forgotten its moments."
        ),
    },
    hint="One Adam; at each step loss_of, backward, step, zero_grad, and loss.item() into the list.",
    explanation="A model that cannot learn a few utterances by heart has a fault, and more data would not mend it.",
)

# --- what a model reads


def transcribe(model: nn.Module, batches: Iterable[Batch], characters: str) -> tuple[list[str], list[str]]:
    said, read = [], []
    model.eval()
    with torch.inference_mode():
        for batch in batches:
            log_probabilities, lengths = model(batch.features, batch.feature_lengths)
            said += batch.texts
            read += ["".join(characters[one - 1] for one in ids) for ids in greedy(log_probabilities, lengths)]
    model.train()
    return said, read


def _transcribed(code: Any, utterances: int = 5) -> dict[str, Any]:
    model = _Recogniser(0.5)
    overfit(model.eval(), _batch(6), 60, 0.1)
    model.train().seen.clear()
    said, read = code(model, [_batch(6, utterances), _batch(7, 2, noise=5.0)], "ABCDEFGH")
    seen = {
        "passes with dropout": sum(one[0] for one in model.seen),
        "with a gradient": sum(one[1] for one in model.seen),
    }
    return {"said": said, "read": read} | seen | {"trains again afterwards": model.training}


TRANSCRIBE = WrittenExercise(
    transcribe,
    module="speech",
    cases=(
        Case("two batches of seven utterances", _transcribed),
        Case("three utterances", lambda code: _transcribed(code, 1)),
    ),
    mistakes={
        ("model.eval()", "pass"): "Dropout is on and batch norm learns from what it hears: model.eval() first.",
        ("model.train()", "pass"): "Whoever trains on finds the model in evaluation mode: model.train() at the end.",
        ("inference_mode()", "enable_grad()"): "Gradients are kept for nothing: torch.inference_mode().",
        ("model.eval()\n    with torch.inference_mode()", "with torch.enable_grad()"): (
            "The model trains meanwhile: first model.eval(), torch.inference_mode() around it, then model.train()."
        ),
        ("return said, read", "return read, said"): "What was said comes first.",
        ("[one - 1]", "[one]"): "Id 1 is the first character, for 0 is the blank: characters[id - 1].",
        ("probabilities, lengths)", "probabilities, torch.full_like(lengths, log_probabilities.shape[1]))"): (
            "Cut each utterance to the length that the model returns: the rest is padding."
        ),
    },
    hint="eval, inference_mode, greedy of what the model returns, characters[id - 1] of each id, joined; train.",
    explanation="Texts as they were said and as they were read, with your own decoder.",
)

# --- the loop


def train(
    run: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    score: Callable[[], float],
    epochs: int,
    clip: float = math.inf,
) -> None:
    for _ in run.epochs(epochs):
        for batch in run.batches(batches):
            loss = loss_of(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, samples=len(batch.texts))
            if run.due:
                run.evaluate(cer=score())


def _trained(
    code: Any, *, epochs: int, clip: float = math.inf, noise: float = 0.0, most_steps: float = math.inf
) -> dict[str, Any]:
    """What a loop does with five batches, and a sixth of a speaker who is held out."""

    def once() -> tuple[WatchedRun, _Recogniser]:
        run, model = WatchedRun(most_steps=most_steps), _Recogniser(0.1)
        *batches, held_out = (_batch(seed, 2 + seed % 3, noise) for seed in range(6))
        held_out = replace(held_out, features=held_out.features.flip(1))

        def score() -> float:
            _, read = transcribe(model, [held_out], "abcdef")
            return float(sum(map(len, read)))

        code(run, model, torch.optim.SGD(model.parameters(), lr=0.5), batches, score, epochs, clip)
        return run, model

    (run, model), (again, _) = once(), once()
    return {
        "epochs that the run is asked for": run.epochs_asked,
        "samples": sum(run.samples),
        "utterances trained on": sum(count for training, gradient, count in model.seen if training and gradient),
        "evaluations": len(run.evaluated),
        "losses": run.losses,
        "scores": run.evaluated,
        "the loss falls": sum(run.losses[-5:]) < sum(run.losses[:5]),
        "the same seed repeats": run.losses == again.losses,
    }


LOOP = WrittenExercise(
    train,
    module="speech",
    cases=(
        Case("four epochs of five batches", lambda code: _trained(code, epochs=4), 1e-3),
        Case("noise for padding", lambda code: _trained(code, epochs=1, noise=3.0), 1e-3),
        Case("gradients clipped to a norm of 0.1", lambda code: _trained(code, epochs=2, clip=0.1), 1e-3),
        Case("a run that is over after 4 steps", lambda code: _trained(code, epochs=2, most_steps=4), 1e-3),
    ),
    mistakes={
        ("optimizer.zero_grad()", "pass"): "Gradients add up from step to step: clear them after each (zero_grad).",
        ("optimizer.step()", "optimizer.zero_grad(), optimizer.step()"): (
            "The gradients are cleared before the optimiser uses them."
        ),
        ("samples=len(batch.texts)", "samples=1"): (
            "Tell run.step how many utterances the batch had: samples=len(batch.texts)."
        ),
        ("run.step(loss, samples=len(batch.texts))", "pass"): (
            "Tell the run of each step: run.step(loss, samples=len(batch.texts))."
        ),
        ("run.epochs(epochs)", "range(epochs)"): "Only the run knows which epochs are left: run.epochs(epochs).",
        ("run.batches(batches)", "batches"): "The batches do not know when the run is over: run.batches(batches).",
        ("if run.due", "if True"): "Evaluate where run.due says so, not after each step: evaluations take time, too.",
        ("loss_of(", "changed(loss_of, *_OF_PADDING)("): (
            "Padding is trained on: the loss is to see the lengths that the model returns."
        ),
        ("nn.utils.clip_grad_norm_(model.parameters(), clip)", "pass"): (
            "Clip the gradients to the norm `clip` between backward and step: nn.utils.clip_grad_norm_."
        ),
    },
    hint="loss_of, backward, clip_grad_norm_, step, zero_grad, run.step, and run.evaluate(cer=score()) where run.due.",
    explanation="The loss falls, the same seed repeats it, padding changes nothing, held-out voices are only scored.",
)

WHY_VOICES = Explanation(
    rubric=(
        "numbers: the error rates on validation and test voices, and of words against characters",
        "why: which choice was made by looking at the validation voices, and why one letter makes a word wrong",
        "trade-off: what few voices in a split cost, and what more of them would",
    ),
    model="Training ended when the validation voices were read well enough, so their rate is the best of several "
    "looks, while the test voices chose nothing: theirs is the rate to expect of a new voice, and usually higher. "
    "A word is wrong if any of its letters is, so WER is a few times CER. With four or five voices a split one odd "
    "voice moves the rate a lot; more voices held out would say it better, and leave fewer to train on.",
)

EXERCISES = {
    "20.loss": LOSS,
    "20.overfit": OVERFIT,
    "20.transcribe": TRANSCRIBE,
    "20.loop": LOOP,
    "20.why_voices": WHY_VOICES,
}
