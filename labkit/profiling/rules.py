"""The rules: each looks for one bottleneck and claims its time.

No later rule counts what an earlier one has claimed. So special rules come before general ones, and all claims together
are at most the step.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from labkit import hardware, tracking
from labkit.profiling.case import Case, Finding
from labkit.profiling.over_time import within
from labkit.profiling.step_time import IDLE
from labkit.profiling.tools import BETWEEN, COMMUNICATION, OTHER

WORTH_SHARE = 0.05
"""Least share of a step that a reported finding claims."""
BETWEEN_LAUNCHES = 3
"""Python's time between two calls, in costs of a launch; more than that is work of its own."""
FEWEST_LOOKUPS, FEWEST_UPDATES = 4, 50
"""Least number of embedding lookups, and of short calls of the optimiser, per step for a finding."""
NEAR_US = 100.0
"""Largest gap between lookups that follow each other."""
BF16_PAYS = 1.1
"""Least speed of matrix products in bf16, relative to fp32, that is worth a try."""
LEAST_OF_PEAK = 0.1
"""Share of the machine's speed below which the precision is not what makes products slow."""
PRODUCTS = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mkldnn_convolution", "aten::cudnn_convolution",
    "aten::convolution_backward", "aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward", "aten::_cudnn_rnn",
    "aten::_cudnn_rnn_backward",
)  # fmt: skip
_BACKWARD = "autograd::engine::evaluate_function: "
LOOKUPS = ("aten::embedding_bag", "aten::_embedding_bag", "aten::embedding")
LOOKUPS_BACKWARD = (f"{_BACKWARD}EmbeddingBagBackward0", f"{_BACKWARD}EmbeddingBackward0")
GLUE = (
    "aten::select", "aten::unbind", "aten::stack", f"{_BACKWARD}SelectBackward0", f"{_BACKWARD}UnbindBackward0",
    f"{_BACKWARD}StackBackward0", f"{_BACKWARD}torch::autograd::AccumulateGrad",
)  # fmt: skip
"""Operators that one lookup per table needs, and one lookup for all tables does not."""

TEXTS = {
    "page faults": (
        "{faults}, take {share}: tensors get fresh memory each time, which the system clears page by page",
        "let the allocator keep what is freed: use `labkit run`, call `labkit.hardware.keep_memory()` at the beginning "
        f"of a notebook, or, with glibc, set {hardware.VARIABLES} in the environment before Python starts",
    ),
    tracking.INPUT: (
        "making or waiting for batches takes {share}",
        "make batches with array operations, not one sample at a time in Python; prepare the data once and store it; "
        "or let `DataLoader(num_workers=…)` prepare the next batch on a free core",
    ),
    BETWEEN: (
        "{share} passes between the optimiser and the next forward pass, where a script makes batches and prints or "
        "saves results",
        "make batches with array operations, not one sample at a time in Python; evaluate, print and save every "
        "hundred steps",
    ),
    tracking.SYNC: (
        "reading {reads:,.0f} numbers per step from tensors (.item() and the like) and waiting for the device take "
        "{share}",
        "keep sums and losses in tensors, compute all samples at once, and read results every hundred steps",
    ),
    COMMUNICATION: (
        "{share} is communication with other ranks, in which this one computes nothing",
        "record a trace of each rank: `labkit profile show FOLDER` names the one that the others wait for; if none is "
        "late, send less",
    ),
    IDLE: (
        "for {share} none of the process' threads had a core: it slept, waited for a disk or a lock, or other programs "
        "had the cores",
        "find out with `--tool py-spy` what it waits for; stop other programs",
    ),
    tracking.TO_DEVICE: (
        "for {share} the GPU waits for copies, or only copies and communicates",
        "pin the host's memory (`pin_memory=True`) and copy with `non_blocking=True`, one batch ahead",
    ),
    "lookups": (
        "{calls:,.0f} embedding lookups per step, one call each, take {share} with their gradients",
        "keep all tables of one width in one tensor and look up all at once: add the first row of its table to each "
        "index (labkit.fast.dlrm)",
    ),
    "optimiser calls": (
        "the optimiser makes {calls:,.0f} short calls per step, which take {share}",
        "let it update all parameters together: `fused=True`, or `foreach=True`",
    ),
    "precision": (
        "matrix products and convolutions in fp32 take {share}; products ran {ratio:.1f} times as fast in bf16 here; "
        "other long operators in fp32, which would move half the bytes in bf16, take {rest}",
        "compute them in bf16: `with torch.autocast(device_type, dtype=torch.bfloat16)` around forward pass and loss",
    ),
    "batch size": (
        "{share} would hardly grow with the batch: calls shorter than {short_us:.0f} µs, the time between calls, the "
        "optimiser, and the slowness of products with few rows",
        "use larger batches, if memory allows; adapt the learning rate; accuracy may suffer",
    ),
    "python": (
        "{share} passes outside of torch's operators: in Python, NumPy or other compiled code",
        "find the lines with `--tool py-spy`; replace loops over samples by operations on tensors",
    ),
}
"""Evidence and advice for each bottleneck."""


def diagnose(case: Case) -> list[Finding]:
    """Bottlenecks worth fixing, largest claim first."""
    found = [finding for rule in RULES for finding in rule(case)]
    return sorted((each for each in found if each.claimed_share >= WORTH_SHARE), key=lambda each: -each.claimed_share)


def _finding(
    case: Case, name: str, us: float, most_us: float = 0.0, events: float = 0, of_host: bool = False,
    said_us: float | None = None, **words: object,
) -> Finding:  # fmt: skip
    """A claim as shares of the step: `us` of it, which no rule has claimed before.

    Fixing it can save at most `most_us`, if that is more, including time that others claim. The share is that of an
    unprofiled step, without the time that the profiler takes for `events`; it is larger than in the profiled step if
    those are few. If only the host gets faster (`of_host`), the step stays as long as the GPU is busy. The evidence
    names the share of `said_us`, if given.
    """
    step_us, most_us = case.time.step_us, max(us, most_us)
    claimed = us / step_us
    share = max(most_us / step_us, (most_us - case.event_us * events) / case.plain_us)
    if of_host and case.device is not None:
        most = case.device.idle_us / step_us
        claimed, share = min(claimed, most), min(share, most)
    evidence, advice = TEXTS[name]
    evidence = evidence.format(share=_percent(case, us if said_us is None else said_us), **words)
    return Finding(name, evidence, advice, claimed, min(share, 1.0))


def _percent(case: Case, us: float) -> str:
    return f"{us / case.time.step_us:.0%} of the step"


def _page_faults(case: Case) -> Iterator[Finding]:
    if (faults := case.faults) is not None:
        most_us = faults.unprofiled * faults.cost_us
        yield _finding(case, "page faults", case.fault_us, most_us, of_host=True, faults=faults.in_words)


def _whole_phases(case: Case) -> Iterator[Finding]:
    reads = case.calls(case.named("aten::item") & (case.phase != tracking.INPUT))
    for phase in (tracking.INPUT, BETWEEN, tracking.SYNC, COMMUNICATION, IDLE):
        events = case.calls(case.phase == phase)
        yield _finding(case, phase, case.phase_us[phase], events=events, of_host=True, reads=reads)


def _to_device(case: Case) -> Iterator[Finding]:
    if case.device is not None:
        us = min(case.phase_us[tracking.TO_DEVICE], case.device.idle_us) + case.device.copy_us
        yield _finding(case, tracking.TO_DEVICE, us)


def _lookups(case: Case) -> Iterator[Finding]:
    forward = case.named(*LOOKUPS) & case.open
    forward &= ~within(forward, case.time.events["parent"].to_numpy())  # embedding_bag calls _embedding_bag
    calls = case.calls(forward)
    if calls < FEWEST_LOOKUPS:
        return
    backward = case.named(*LOOKUPS_BACKWARD) & case.open
    own = case.below(forward | backward)
    moved = case.work(own & case.named(*LOOKUPS[1:])).bytes
    glue_us = float(case.self_us[case.below(case.named(*GLUE)) & case.open & ~own].sum())
    events = case.calls(own & case.open)
    us = case.claim(own)
    for rows in (forward, backward):
        us += sum(case.claim_python(phase, free) for phase, free in case.between_us(rows, NEAR_US).items())
    one_call_us = max(us / calls, moved / case.limits.bandwidth_gb_per_s / 1e3)
    # all threads share the arithmetic of one large call, but not that of small ones
    kernels_us = case.self_us[own & ~case.short].sum() / case.limits.threads
    claimed_us = us - max(one_call_us, kernels_us)
    # and the optimiser updates one parameter instead of many
    most_us = us - one_call_us + glue_us + case.phase_us[tracking.OPTIMISER]
    yield _finding(case, "lookups", claimed_us, most_us, events, said_us=us, calls=calls)


def _updates(case: Case) -> Iterator[Finding]:
    of_it = (case.phase == tracking.OPTIMISER) & case.open
    if case.time.events["name"][of_it].astype(str).str.contains("_fused_|_foreach_").any():
        return  # it already updates them together
    short = of_it & case.short
    calls = case.calls(short)
    if calls < FEWEST_UPDATES:
        return
    us = case.claim(short) + case.claim_python(tracking.OPTIMISER, np.inf)
    yield _finding(case, "optimiser calls", us, case.phase_us[tracking.OPTIMISER], calls, calls=calls)


def _precision(case: Case) -> Iterator[Finding]:
    ratio = case.limits.bf16_gflops / case.limits.fp32_gflops
    if ratio < BF16_PAYS:
        return
    events = case.time.events
    in_fp32 = np.array([inputs.types[:1] == ("float",) for inputs in events["inputs"]], bool) & case.open
    products = case.named(*PRODUCTS) & in_fp32
    if case.device is None:
        products &= (events["duration_us"] >= case.short_us).to_numpy()
        rest_us = float(case.self_us[in_fp32 & ~products & ~case.short & (case.phase != tracking.OPTIMISER)].sum())
        us = case.claim(case.below(products))
    else:  # the time of kernels counts, not that of the host's calls which launch them
        launched = case.device.launched_us / case.time.steps
        us = float(launched[products].sum())
        rest_us = max(0.0, float(launched[events["parent"].to_numpy() < 0].sum()) - us)
    flop = case.work(products).flop
    if us and flop / us / 1e3 < LEAST_OF_PEAK * case.limits.fp32_gflops:
        return  # something else makes them slow
    # at best, products reach the speed of large ones, and operators that only move numbers move half as many bytes
    most_us = max(us * (1 - 1 / ratio), us - flop / case.limits.bf16_gflops / 1e3) + rest_us / 2
    claimed_us, rest = us * (1 - 1 / ratio), _percent(case, rest_us)
    yield _finding(case, "precision", claimed_us, most_us, case.calls(products), said_us=us, ratio=ratio, rest=rest)


def _batch(case: Case) -> Iterator[Finding]:
    launch_us = case.limits.launch_us
    fixed = case.short | (case.phase == tracking.OPTIMISER)
    # long calls also have a start-up cost, and making one batch has calls of its own
    whole_us = case.self_us[fixed & (case.phase != tracking.SYNC)].sum() + case.calls(case.counts & ~fixed) * launch_us
    whole_us += (case.calls(np.isin(case.phase, [tracking.INPUT, BETWEEN])) + 1) * BETWEEN_LAUNCHES * launch_us
    whole_us += _thin_products_us(case, case.counts) + sum(case.python_us.values())
    whole_us = min(whole_us, case.time.step_us)  # the terms overlap
    us = _thin_products_us(case, case.open & ~fixed) + case.claim(fixed)
    for phase in (tracking.FORWARD, tracking.BACKWARD, tracking.OPTIMISER, OTHER):
        us += case.claim_python(phase, (case.calls(case.phase == phase) + 1) * BETWEEN_LAUNCHES * launch_us)
    events = case.calls(fixed & case.counts)
    yield _finding(case, "batch size", us, whole_us, events, said_us=whole_us, short_us=case.short_us)


def _thin_products_us(case: Case, counted: np.ndarray) -> float:
    """Time that products lose, compared with large ones, because the batch is their smallest size."""
    all_inputs = case.time.events["inputs"]
    first = (inputs.shapes[0] for inputs, phase in zip(all_inputs, case.phase, strict=True)
             if phase == tracking.FORWARD and inputs.shapes)  # fmt: skip
    rows = Counter(sizes[0] for sizes in first if len(sizes) == 2 and isinstance(sizes[0], int))
    if not rows or case.device is not None:
        return 0.0
    batch, lost_us = rows.most_common(1)[0][0], 0.0
    for row in np.flatnonzero(case.named("aten::mm", "aten::addmm") & counted):
        matrices = [sizes for sizes in all_inputs[row].shapes if len(sizes) == 2][-2:]
        if len(matrices) == 2 and batch == min(*matrices[0], *matrices[1]):
            in_bf16 = "c10::BFloat16" in all_inputs[row].types
            gflops = case.limits.bf16_gflops if in_bf16 else case.limits.fp32_gflops
            lost_us += max(0.0, case.self_us[row] - case.work(np.arange(len(counted)) == row).flop / gflops / 1e3)
    return lost_us


def _python(case: Case) -> Iterator[Finding]:
    us, most_us = sum(case.open_python_us.values()), sum(case.python_us.values())
    yield _finding(case, "python", us, most_us, of_host=True)


RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _page_faults, _whole_phases, _to_device, _lookups, _updates, _precision, _batch, _python,
)  # fmt: skip
"""In the order in which they claim."""
