"""The one vocabulary of counters: what each means, in which unit, and what it does not say.

`docs/counters.md` is this table in words; a test holds the two together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SCOPES = {
    "host": "the whole machine, other programs included",
    "process": "the job: its process and that one's descendants",
    "device": "a whole GPU, whoever uses it",
    "mig": "one MIG slice of a GPU",
}


@dataclass(frozen=True)
class Counter:
    """What a counter means."""

    name: str
    scopes: tuple[str, ...]
    unit: str
    definition: str
    not_said: str
    """What readers take it for and it is not."""
    ceiling: float = math.inf
    """A larger value is nonsense; so is one below zero."""
    resolution: float = 1.0
    """What a value is rounded to: finer is noise of the measurement, and costs bytes on disk."""


def _percent(name: str, scopes: tuple[str, ...], definition: str, not_said: str) -> Counter:
    return Counter(name, scopes, "%", definition, not_said, ceiling=100.0, resolution=0.1)


def _rate(name: str, definition: str, not_said: str) -> Counter:
    return Counter(name, ("device", "mig"), "bytes/s", definition, not_said, ceiling=1e13, resolution=2**20)


_GPU = ("device", "mig")

_TABLE = (
    _percent(
        "cpu_percent",
        ("host",),
        "Time in which the machine's cores ran something, of the time of all cores.",
        "Whether the cores computed or waited for memory: a core that waits for memory is busy.",
    ),
    Counter(
        "cpu_percent",
        ("process",),
        "% of a core",
        "CPU time of the job's threads, of one core's time: 200 is two cores.",
        "Work done: threads that spin while they wait for others count in full.",
        resolution=0.1,
    ),
    Counter(
        "memory_used",
        ("host",),
        "bytes",
        "Memory that is not available to a new program without swapping.",
        "What the job needs: other programs are in it, and caches that can be dropped are not.",
        resolution=4096,
    ),
    Counter(
        "memory_used",
        ("process", "device", "mig"),
        "bytes",
        "GPU memory that is allocated: by the job, on the GPU, or in the slice.",
        "What tensors need: CUDA's own context (hundreds of MB) and the allocator's cache are in it.",
        resolution=4096,
    ),
    Counter(
        "memory_resident",
        ("process",),
        "bytes",
        "Pages of the job's processes that are in memory.",
        "What the job alone needs: pages that processes share count once for each, and files it maps are in it.",
        resolution=4096,
    ),
    Counter(
        "memory_resident_peak",
        ("process",),
        "bytes",
        "The largest memory_resident of the main process since the run began, kept by the kernel.",
        "The peak of its children.",
        resolution=4096,
    ),
    Counter("threads", ("process",), "count", "Threads of the job's processes.", "How many of them ran."),
    Counter(
        "cpu_energy",
        ("host",),
        "J",
        "Energy of a CPU package, counted by the processor (RAPL); the counter's name ends with the package's.",
        "The job's share, memory (on most machines), disks, fans and the power supply's losses.",
        resolution=0.01,
    ),
    Counter(
        "board_power",
        ("host",),
        "W",
        "Power that a Jetson module draws, CPU, GPU and memory together.",
        "The carrier board, and what it feeds.",
        ceiling=1000,
        resolution=0.01,
    ),
    _percent(
        "gpu_utilisation",
        ("device",),
        "Time in which at least one kernel ran on the GPU, over the driver's last period (1/6 to 1 s).",
        "How much of the GPU was used: one thread on one multiprocessor makes 100 %.",
    ),
    _percent(
        "memory_utilisation",
        ("device",),
        "Time in which the GPU's memory was read or written, over the driver's last period.",
        "Bandwidth: a trickle of reads makes it large. dram_active says bandwidth.",
    ),
    _percent(
        "sm_active",
        _GPU,
        "Time in which a multiprocessor had at least one warp, averaged over all multiprocessors.",
        "That warps computed: those that wait for memory are active.",
    ),
    _percent(
        "sm_occupancy",
        _GPU,
        "Warps that were resident, of the most that the multiprocessors hold.",
        "Speed: kernels that use many registers are fastest at a low occupancy.",
    ),
    _percent(
        "tensor_active",
        _GPU,
        "Time in which the tensor cores' pipe was busy, averaged over all multiprocessors.",
        "That the shapes fit them: padding keeps them busy, too.",
    ),
    _percent(
        "dram_active",
        _GPU,
        "Time in which the GPU's memory interface moved data: the share of its peak bandwidth.",
        "That the data was needed: it moves whole sectors where a byte is asked for.",
    ),
    _rate("pcie_tx", "Bytes that the GPU sent over PCIe, headers included.", "To whom."),
    _rate("pcie_rx", "Bytes that the GPU received over PCIe, headers included.", "From whom."),
    _rate("nvlink_tx", "Bytes that the GPU sent over all its NVLinks.", "To which GPU."),
    _rate("nvlink_rx", "Bytes that the GPU received over all its NVLinks.", "From which GPU."),
    Counter(
        "sm_utilisation",
        ("process",),
        "%",
        "Time in which kernels of the job ran on the GPU, over the driver's last period, summed over its processes.",
        "The job's share of a GPU that several use: what runs at once counts for each, and may sum to more than 100 %.",
    ),
    Counter(
        "power",
        ("device",),
        "W",
        "Power that the GPU's board draws; on Ampere and later (without GA100) an average over a second.",
        "The host, and which of the jobs on the GPU drew it.",
        ceiling=5000,
        resolution=0.1,
    ),
    Counter(
        "energy",
        ("device",),
        "J",
        "Energy of the GPU's board since its driver was loaded, counted by the GPU (Volta and later).",
        "The host, and which of the jobs on the GPU took it.",
        resolution=0.1,
    ),
    Counter("sm_clock", ("device",), "MHz", "Clock of the multiprocessors.", "Work: an idle GPU may clock high."),
    Counter("memory_clock", ("device",), "MHz", "Clock of the GPU's memory.", "Traffic."),
    Counter(
        "temperature",
        ("device",),
        "°C",
        "Temperature of the GPU's chip.",
        "The hottest spot, and that of the memory.",
        ceiling=200,
    ),
    Counter(
        "throttle_reasons",
        ("device",),
        "bits",
        "Why the clocks are lower than they could be, as NVML's nvmlClocksEventReasons bits; 0 is not at all.",
        "By how much: the lowest bit is set on every idle GPU.",
        ceiling=2**53,
    ),
    Counter(
        "samples_missed",
        ("host",),
        "count",
        "Samples that were due since the one before and were not taken.",
        "What happened meanwhile.",
    ),
    Counter(
        "sources_failed",
        ("host",),
        "count",
        "Never a value: its note says which source of counters failed, and how.",
        "Which counters would have come from it.",
    ),
    Counter(
        "samplers_died",
        ("host",),
        "count",
        "Samplers of this run that had died before this one was started.",
        "What happened meanwhile.",
    ),
)
COUNTERS = {(scope, counter.name): counter for counter in _TABLE for scope in counter.scopes}
"""By scope and name."""


def counter_of(scope: str, name: str) -> Counter:
    """The meaning of a counter in a run's telemetry.

    Raises:
        KeyError: it is not in the vocabulary.
    """
    return COUNTERS[scope, "cpu_energy" if name.startswith("cpu_energy") else name]


def vocabulary() -> tuple[Counter, ...]:
    """Every counter, in the order of the documentation."""
    return _TABLE
