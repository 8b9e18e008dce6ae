"""What to change in a slow step, and how much faster it can become at most.

Each rule looks for one bottleneck and claims its time; what one rule has claimed, no later one counts again, so the
special come before the general. The expected gain is a bound: a step of which a share f can be saved becomes at most
1 / (1 − f) times as fast (Amdahl, AFIPS 1967).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from labkit.hardware.calibration import Calibration
from labkit.profiling.step_time import OTHER, StepTime
from labkit.profiling.work import Inputs, Work, operator_work
from labkit.training.phases import BACKWARD, FORWARD, INPUT, OPTIMISER, SYNC, TO_DEVICE

WORTH_SHARE = 0.05
"""What saves less of a step than this is not worth a line."""
SHORT_LAUNCHES = 10
"""A call whose own time is shorter than so many times the cost of asking is hardly there for its arithmetic."""
BETWEEN_LAUNCHES = 3
"""Between two calls Python takes up to so many times the cost of asking; more than that is work of its own."""
FEWEST_LOOKUPS, FEWEST_UPDATES = 4, 50
"""Calls a step from which on embedding lookups, or short calls of the optimiser, count as many."""
NEAR_US = 100.0
"""Lookups that are no further apart follow each other."""
BF16_PAYS = 1.1
"""Matrix products in bf16 over those in fp32, from which on the difference is worth a try."""
PRODUCTS = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mkldnn_convolution", "aten::cudnn_convolution",
    "aten::convolution_backward", "aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward", "aten::_cudnn_rnn",
    "aten::_cudnn_rnn_backward",
)  # fmt: skip
LOOKUPS = ("aten::embedding_bag", "aten::_embedding_bag", "aten::embedding")
LOOKUPS_BACKWARD = tuple(
    f"autograd::engine::evaluate_function: {name}Backward0" for name in ("EmbeddingBag", "Embedding")
)


@dataclass(frozen=True)
class Finding:
    """One bottleneck."""

    name: str
    """"input", "sync", "idle", "host-to-device", "lookups", "optimiser calls", "precision", "batch size", "python"."""
    evidence: str
    """What was seen, with its figures"""
    advice: str
    claimed_share: float
    """Of the step: what mending this can save at most beside all other findings, which are sorted by it"""
    share: float
    """The same with what other findings claim, too: larger batches, say, also spread the cost of lookups"""

    @property
    def bound(self) -> float:
        """How many times as fast training becomes at most."""
        return 1 / (1 - self.share) if self.share < 1 else np.inf

    @property
    def bound_text(self) -> str:
        """The same in figures: 1.86×."""
        return "over 100×" if self.bound > 100 else f"{self.bound:.3g}×"


@dataclass
class Case:
    """What the rules look at."""

    time: StepTime
    card: Calibration
    idle_us: float = 0.0
    """Of one step, outside of input and sync, in which its thread had no core"""
    device_idle_us: float | None = None
    """Of one step, in which the GPU had nothing to do; None without one. No saving on the host can be more"""
    event_cost_us: float = 0.0
    """What the profiler takes to write an event down"""

    def __post_init__(self):
        events = self.time.events
        phase = events["phase"].to_numpy()
        self.operators = (events["category"] == "cpu_op").to_numpy()
        self.self_us = events["self_us"].to_numpy() / self.time.steps
        """Of each event in one step"""
        self.step_us = self.time.step_us
        self.short_us = SHORT_LAUNCHES * self.card.launch_us
        self.open = self.operators & ~np.isin(phase, [INPUT, SYNC])
        """Operators that no rule has claimed"""
        self.python_us = {name: float(self.self_us[~self.operators & (phase == name)].sum()) for name in set(phase)}
        """Time outside of operators, by phase, that no rule has claimed"""
        self.input_us, self.to_device_us, self.sync_us = (
            float(self.self_us[phase == name].sum()) for name in (INPUT, TO_DEVICE, SYNC)
        )
        self.sync_us += self.claim_spans(self.time.waits)
        self.counts, self.all_python_us = self.open.copy(), dict(self.python_us)
        """What belongs to no finding of its own phase, whoever claims it later"""

    def claim_spans(self, spans: np.ndarray) -> float:
        """Claim everything between these begins and ends; its time in one step."""
        events = self.time.events
        begin = events["start_us"].to_numpy()
        claimed = 0.0
        for start, end in spans:
            first, last = np.searchsorted(begin, [start, end])
            rows = np.arange(first, last)[self.open[first:last]]
            phase = events["phase"].iat[max(0, np.searchsorted(begin, start, side="right") - 1)]
            if phase in (INPUT, SYNC):
                continue  # which are findings of their own
            inside = self.self_us[rows].sum()
            of_operators = self.self_us[first:last][self.operators[first:last]].sum()
            outside = max(0.0, (end - start) / self.time.steps - of_operators)
            if phase in self.python_us:
                self.python_us[phase] = max(0.0, self.python_us[phase] - outside)
            self.open[rows] = False
            claimed += inside + outside
        return claimed

    def claim(self, rows: np.ndarray) -> float:
        """Claim operators; their own time in one step."""
        rows = rows & self.open
        self.open &= ~rows
        return float(self.self_us[rows].sum())

    def named(self, names: tuple[str, ...]) -> np.ndarray:
        return self.time.events["name"].isin(names).to_numpy()

    def below(self, roots: np.ndarray) -> np.ndarray:
        """The roots and all they call."""
        marked = roots.copy()
        for row, parent in enumerate(self.time.events["parent"].to_numpy()):
            if parent >= 0 and marked[parent]:
                marked[row] = True
        return marked

    def work(self, row: int) -> Work:
        """Of an operator; none where it is not known."""
        event = self.time.events.iloc[row]
        if not event["shapes"]:
            return Work(0, 0)
        inputs = Inputs(*(ast.literal_eval(event[column]) for column in ("shapes", "types", "values")))
        return operator_work(event["name"], inputs) or Work(0, 0)

    @cached_property
    def sizes(self) -> list[list[list[int]]]:
        """Of each event's inputs; empty where they were not recorded."""
        parsed = {text: ast.literal_eval(text) if text else [] for text in self.time.events["shapes"].unique()}
        return [parsed[text] for text in self.time.events["shapes"]]

    def undisturbed(self, us: float, events: np.ndarray) -> float:
        """The same time in a step that is as long as this one, but for what the profiler took to write events down.

        What has few events is a larger share of a step that nobody looks at.
        """
        cost_us = self.event_cost_us / self.time.steps
        rest = self.step_us - len(self.self_us) * cost_us
        return max(us, (us - events.sum() * cost_us) * self.step_us / rest) if rest > 0 else us

    def percent(self, us: float) -> str:
        return f"{us / self.step_us:.0%} of the step"


def diagnose(case: Case) -> list[Finding]:
    """Bottlenecks that are worth a try, the one that can save most first."""
    found = []
    for rule in RULES:
        for name, evidence, advice, *saved_us in rule(case):
            most_us = case.step_us
            if case.device_idle_us is not None and name != "precision":
                most_us = case.device_idle_us
            claimed, share = (min(us, most_us) / case.step_us for us in (saved_us[0], saved_us[-1]))
            if claimed >= WORTH_SHARE:
                found.append(Finding(name, evidence, advice, claimed, share))
    return sorted(found, key=lambda finding: -finding.claimed_share)


Found = Iterator[tuple[str, str, str, float] | tuple[str, str, str, float, float]]
"""Name, evidence, advice, and microseconds of a step that it can save; last, where that is more, what it can save with
what others claim."""


def _input(case: Case) -> Found:
    us = case.input_us
    yield (
        INPUT,
        f"making a batch, or waiting for it, takes {case.percent(us)}",
        "make batches with array operations, not one sample at a time in Python; prepare once and store; or let "
        "`DataLoader(num_workers=…)` prepare the next batch on a core that is free",
        us,
        case.undisturbed(us, (case.time.events["phase"] == INPUT).to_numpy()),
    )


def _sync(case: Case) -> Found:
    us, reads = case.sync_us, case.named(("aten::item",)).sum() / case.time.steps
    yield (
        SYNC,
        f"{reads:,.0f} numbers a step are read from tensors by .item() or the like; this takes {case.percent(us)}",
        "keep sums and losses in tensors, compute with all samples at once, and read them every hundred steps",
        us,
    )


def _idle(case: Case) -> Found:
    yield (
        "idle",
        f"for {case.percent(case.idle_us)} its thread had no core: it slept, waited for a disk or a lock, or other "
        "programs had the cores",
        "look what it waits for with `--tool py-spy`; stop other programs",
        case.idle_us,
    )


def _to_device(case: Case) -> Found:
    us = case.to_device_us
    yield (
        TO_DEVICE,
        f"copying batches to the device takes {case.percent(us)}",
        "pin the host's memory (`pin_memory=True`) and copy with `non_blocking=True`, a batch ahead",
        us if case.device_idle_us is not None else 0.0,
    )


def _lookups(case: Case) -> Found:
    events, steps = case.time.events, case.time.steps
    forward = case.named(LOOKUPS) & case.open
    forward &= ~np.r_[forward, False][events["parent"].to_numpy()]  # _embedding_bag lies within embedding_bag
    calls = forward.sum() / steps
    if calls < FEWEST_LOOKUPS:
        return
    own = case.below(forward | (case.named(LOOKUPS_BACKWARD) & case.open))
    moved = sum(case.work(row).bytes for row in np.flatnonzero(own & case.named(LOOKUPS[1:]))) / steps
    us = case.claim_spans(_spans(case, forward)) + case.claim_spans(_spans(case, case.named(LOOKUPS_BACKWARD)))
    us += case.claim(own)
    # in one call, its arithmetic is shared by all threads, which that of a small call is not
    kernels = own & (case.self_us * steps >= case.short_us)
    one_call_us = max(us / calls, moved / case.card.bandwidth_gb_per_s / 1e3)
    least_us = max(one_call_us, case.self_us[kernels].sum() / case.card.threads)
    yield (
        "lookups",
        f"{calls:,.0f} embedding lookups a step, one call each, take {case.percent(us)} with their gradients",
        "keep all tables of one width in one tensor and look up all at once: add to each index the row at which its "
        "table begins (labkit.models.tables)",
        us - least_us,
        us - one_call_us,
    )


def _spans(case: Case, calls: np.ndarray) -> np.ndarray:
    """Stretches of calls that follow each other closely, with what lies between them."""
    events = case.time.events[calls]
    if events.empty:
        return np.empty((0, 2))
    begin, end = events["start_us"].to_numpy(), (events["start_us"] + events["duration_us"]).to_numpy()
    first = np.r_[True, begin[1:] > end[:-1] + NEAR_US]
    return np.column_stack([begin[first], end[np.r_[first[1:], True]]])


def _updates(case: Case) -> Found:
    of_it = (case.time.events["phase"] == OPTIMISER).to_numpy() & case.open
    if case.time.events["name"][of_it].str.contains("_fused_|_foreach_").any():
        return  # it does so already
    short = of_it & (case.self_us * case.time.steps < case.short_us)
    calls = short.sum() / case.time.steps
    if calls < FEWEST_UPDATES:
        return
    us = case.claim(short) + case.python_us.pop(OPTIMISER, 0.0)
    yield (
        "optimiser calls",
        f"the optimiser makes {calls:,.0f} short calls a step, which take {case.percent(us)}",
        "let it update all parameters together: `fused=True`, or `foreach=True`",
        us,
    )


def _precision(case: Case) -> Found:
    ratio = case.card.bf16_gflops / case.card.fp32_gflops
    if ratio < BF16_PAYS:
        return
    events = case.time.events
    in_fp32 = events["types"].astype(str).str.startswith("['float'").to_numpy()
    long = (events["duration_us"] >= case.short_us).to_numpy()
    products = case.named(PRODUCTS) & in_fp32 & long & case.open
    flop = sum(case.work(row).flop for row in np.flatnonzero(products)) / case.time.steps
    others = in_fp32 & case.open & ~products & ~(events["phase"] == OPTIMISER).to_numpy()
    us = case.claim(case.below(products))
    # at best products reach the speed of large ones, and what only moves numbers moves half as many bytes
    most_us = max(us * (1 - 1 / ratio), us - flop / case.card.bf16_gflops / 1e3) + case.self_us[others].sum() / 2
    yield (
        "precision",
        f"matrix products and convolutions in fp32 take {case.percent(us)}, and products ran {ratio:.1f} times as "
        "fast in bf16 here",
        "compute them in bf16: `with torch.autocast(device_type, dtype=torch.bfloat16)` around forward pass and loss",
        us * (1 - 1 / ratio),
        case.undisturbed(most_us, products | others),
    )


def _batch(case: Case) -> Found:
    events = case.time.events
    fixed = (case.self_us * case.time.steps < case.short_us) | (events["phase"] == OPTIMISER).to_numpy()
    whole_us = case.self_us[fixed & case.counts].sum() + _thin_products_us(case, case.counts)
    us = _thin_products_us(case, case.open) + case.claim(fixed)
    for phase in (FORWARD, BACKWARD, OPTIMISER, OTHER):
        calls = ((events["phase"] == phase) & (events["category"] == "cpu_op")).sum() / case.time.steps
        most_us = (calls + 1) * BETWEEN_LAUNCHES * case.card.launch_us
        between = min(case.python_us.get(phase, 0.0), most_us)
        whole_us += min(case.all_python_us.get(phase, 0.0), most_us)
        case.python_us[phase] = case.python_us.get(phase, 0.0) - between
        us += between
    yield (
        "batch size",
        f"{case.percent(whole_us)} would hardly grow with the batch: calls of less than {case.short_us:.0f} µs, what "
        "lies between calls, the optimiser, and what products of few rows lose against the machine's speed",
        "take larger batches, if memory allows; the learning rate has to follow, and accuracy may suffer",
        us,
        max(us, whole_us),
    )


def _thin_products_us(case: Case, counted: np.ndarray) -> float:
    """What products whose smallest size is the batch's take longer than their arithmetic would in large ones."""
    events = case.time.events
    forward = (events["phase"] == FORWARD).to_numpy()
    rows = Counter(
        sizes[0][0] for sizes, counts in zip(case.sizes, forward, strict=True)
        if counts and sizes and len(sizes[0]) == 2 and isinstance(sizes[0][0], int)
    )  # fmt: skip
    if not rows:
        return 0.0
    batch = rows.most_common(1)[0][0]
    lost = 0.0
    for row in np.flatnonzero(case.named(("aten::mm", "aten::addmm")) & counted):
        matrices = [sizes for sizes in case.sizes[row] if len(sizes) == 2][-2:]
        if len(matrices) == 2 and batch == min(*matrices[0], *matrices[1]):
            peak = case.card.bf16_gflops if "BFloat16" in events["types"].iat[row] else case.card.fp32_gflops
            least_us = case.work(row).flop / peak / 1e3
            lost += max(0.0, case.self_us[row] - least_us / case.time.steps)
    return lost


def _python(case: Case) -> Found:
    us = sum(case.python_us.get(phase, 0.0) for phase in (FORWARD, BACKWARD, OPTIMISER, OTHER))
    us = max(0.0, us - case.idle_us)
    yield (
        "python",
        f"{case.percent(us)} passes outside of torch's operators: in Python, NumPy or compiled code of its own",
        "`--tool py-spy` tells the lines; make loops over samples operations on tensors",
        us,
    )


RULES: tuple[Callable[[Case], Found], ...] = (
    _input, _sync, _idle, _to_device, _lookups, _updates, _precision, _batch, _python,
)  # fmt: skip
"""In the order in which they claim."""
