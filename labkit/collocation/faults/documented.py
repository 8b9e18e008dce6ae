"""What NVIDIA documents of faults under each way to share a GPU, for machines that cannot run them."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import pandas as pd

COLUMNS = ["mode", "fault", "gpus", "neighbours", "documented", "source", "section", "url", "provenance"]
PROVENANCE = "documented, not run here"


@dataclass(frozen=True)
class _Source:
    """Where it is written; read in November 2026."""

    source: str
    section: str
    url: str


_MPS = "https://docs.nvidia.com/deploy/mps/when-to-use-mps.html"
_MPS_ERRORS = _Source("NVIDIA, Multi-Process Service", "When to Use MPS, Error Containment", _MPS)
_MPS_SIGNALS = _Source(
    "NVIDIA, Multi-Process Service", "When to Use MPS, Application Considerations; Client Early Termination", _MPS
)
_MIG = _Source(
    "NVIDIA, Multi-Instance GPU", "product page", "https://www.nvidia.com/en-us/technologies/multi-instance-gpu/"
)
_ECC = _Source(
    "NVIDIA, GPU Memory Error Management",
    "Error Containment",
    "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-containment.html",
)
_SLICES = _Source(
    "NVIDIA, Kubernetes device plugin", "README, Shared Access to GPUs", "https://github.com/NVIDIA/k8s-device-plugin"
)
_OPERATOR = _Source(
    "NVIDIA, GPU Operator",
    "Time-Slicing GPUs in Kubernetes",
    "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html",
)
_RUNTIME = _Source(
    "NVIDIA, CUDA Runtime API",
    "Data types, cudaErrorLaunchFailure",
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
)

_ROWS: tuple[tuple[str, str, str, str, str, _Source], ...] = (
    (
        "mps",
        "gpu-access",
        "Volta and later",
        "end",
        "A fatal fault is reported to every client on the GPUs that the faulty client shares with others, without "
        "saying whose it was, and they have to exit. The server refuses new clients there until all have; then it "
        "makes the contexts anew. Clients on other GPUs go on.",
        _MPS_ERRORS,
    ),
    (
        "mps",
        "gpu-access",
        "before Volta",
        "end, or compute with changed data",
        "A fatal fault ends the server and the work of all clients. Clients have parts of one address space, so a "
        "write out of range may change another's memory without an error.",
        _MPS_ERRORS,
    ),
    (
        "mps",
        "leak",
        "all",
        "go on",
        "An error that a CUDA call reports on the CPU, as a failed allocation does, goes to the client that called, "
        "and to no other.",
        _MPS_ERRORS,
    ),
    (
        "mps",
        "segfault",
        "all",
        "undefined",
        "A client that ends by a segmentation fault while its work is on the GPU may leave server and clients in an "
        "undefined state: hangs, failures, wrong data.",
        _MPS_SIGNALS,
    ),
    (
        "mps",
        "kill",
        "all",
        "undefined",
        "To end a client by a signal is not supported: it must have synchronised its streams before, or server and "
        "clients may have to be started anew.",
        _MPS_SIGNALS,
    ),
    (
        "mig",
        "gpu-access",
        "with MIG",
        "go on",
        "Each instance has its own compute, memory and cache: a failing application on one does not touch "
        "those on others.",
        _MIG,
    ),
    (
        "naive",
        "gpu-access",
        "all",
        "share one fault domain",
        "Nothing is done to isolate workloads that share a GPU by time-slicing; the README says that if one crashes, "
        "all do.",
        _SLICES,
    ),
    (
        "naive",
        "leak",
        "all",
        "may find no memory",
        "There is no isolation of memory or of faults between those that share a GPU by time-slicing.",
        _OPERATOR,
    ),
    (
        "any",
        "gpu-access",
        "all",
        "not spoken of",
        "After a kernel's exception all further CUDA work of the process returns the same error, until the process is "
        "ended and started anew.",
        _RUNTIME,
    ),
    (
        "any",
        "uncorrectable memory error",
        "data-centre GPUs, Ampere and later",
        "go on, but for rare cases",
        "The error is contained: it ends the applications that meet it, the others go on, and new ones can start. "
        "Up to Volta it hit all.",
        _ECC,
    ),
)


def documented_behaviour() -> pd.DataFrame:
    """What is documented to become of the neighbours, in our words.

    Returns:
        mode; fault, as `FAULTS` names it; gpus, for which it holds; neighbours, what becomes of them in a few words;
        documented, in a sentence; source, section and url; provenance, "documented, not run here".
    """
    rows = [(*words, *astuple(source), PROVENANCE) for *words, source in _ROWS]
    return pd.DataFrame(rows, columns=COLUMNS)
