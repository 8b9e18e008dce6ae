"""The settings of the kit's jobs, one dataclass per script. They need no torch: wrong ones are refused at once."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from labkit import UserError, errors, hardware, models, tracking
from labkit.jobs.job import Job, setting
from labkit.jobs.presets import DLRM_PRESETS, SPEECH_PRESETS, Preset, chosen_target
from labkit.placement import Placement, row_width

MAX_EPOCHS = 10
"""Epochs of a run where neither the preset nor the user says how many"""
ENDLESS = 10**6
"""Epochs of a run that something else ends"""
MOST_LAYERS = 1000
"""Most layers of a recogniser; building more would take minutes"""
PATIENCE_EPOCHS = 3
"""Epochs without a better value that end a run with no value to reach, no time limit and no schedule"""
RECORDED_ELSEWHERE = ("data", "target", "max_seconds", "max_epochs", "runs_dir", "device", "schema", "precision")
"""Settings that a run's record has in other places, or that are not part of its training"""
BATCHES = 4
"""Batches that `dlrm_shape` makes before the clock starts and then uses in turn"""

Policy = Literal["error", "few", "skip"]
DlrmOptimiser = Literal["sgd", "adagrad", "rowwise-adagrad", "adam"]
SpeechOptimiser = Literal["sgd", "adagrad", "adam", "adadelta"]


@dataclass(frozen=True)
class TrainingJob(Job):
    """The settings that both trainings share. Those that are not given follow from the preset."""

    title: ClassVar[str]
    """Name of the model, for tables"""
    words: ClassVar[str]
    """The model and its data, for the commands' help"""
    presets: ClassVar[dict[str, Preset]]
    metrics: ClassVar[tuple[str, ...]]
    """Metrics of an evaluation, the main one first"""
    optimisers: ClassVar[tuple[str, ...]]

    data: str = setting(metavar="NAME|PATH")
    """Dataset of `labkit data list`, a file or a folder (default: the preset's)"""
    preset: str = setting("tour", metavar="P")
    """Model and training settings: {presets}"""
    target: "tracking.Target" = setting(metavar="X")
    """Value that ends the run: a number, metric=number ({metrics}), or none (default: the dataset's)"""
    device: str = setting("auto", metavar="D")
    """Device to compute on: auto, cpu, cuda or cuda:1"""
    seed: int = 0
    """Seed of weights, data order and dropout"""
    batch_size: int = setting()
    """Samples per step"""
    optimiser: str = setting(flags=("--optimizer",))
    """Optimiser; one other than the preset's needs --lr, too"""
    lr: float = setting()
    """Learning rate"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Number format; auto: bf16 on a GPU of compute capability 8.0 or above, on a CPU with AMX, and on AMD's AVX-512"""
    kernels: Literal["plain", "fast"] = "fast"
    """Implementation; plain: as in a textbook; fast: the same mathematics by labkit.fast"""
    max_seconds: float | None = setting(metavar="S")
    """Seconds after which the run ends, with one last evaluation"""
    max_epochs: int = setting()
    """Passes over the training split after which the run ends"""
    on_bad_row: Policy = "error"
    """Rows that cannot be read; {policies}"""
    runs_dir: str = setting("runs", metavar="DIR")
    """Folder for run folders"""

    def __post_init__(self):
        preset = get_preset(self.name, self.preset)
        own = {"max_epochs": MAX_EPOCHS} | preset.train
        if self.optimiser not in (None, own["optimiser"]) and self.lr is None:
            raise UserError(
                f"the learning rate of preset {preset.name!r} is for {own['optimiser']} and would not suit "
                f"{self.optimiser}: give one with --lr.",
                field="optimiser",
            )
        if self.max_seconds is not None:
            own["max_epochs"] = ENDLESS  # all of the seconds are to be used
        for name in ("batch_size", "optimiser", "lr", "max_epochs"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, own[name])
        if (self.data or preset.data) is None:
            raise UserError(
                f"preset {preset.name!r} is made for a dataset that labkit does not ship: name yours with --data, or "
                "try the preset on --data synthetic.",
                field="data",
            )
        object.__setattr__(self, "data", self.data or preset.data)
        object.__setattr__(self, "target", chosen_target(self.name, self.metrics, self.data, self.target))
        self.refuse_unless_above_zero("batch_size", "max_epochs", "lr", "max_seconds")
        if not 0 <= self.seed < 2**63:
            raise errors.wrong_value("seed", self.seed, "give a whole number from 0 to 2^63 - 1.")

    @property
    def label(self) -> str:
        """Job and preset, for tables: dlrm:tour."""
        return f"{self.name}:{self.preset}"

    @property
    def preset_values(self) -> Preset:
        return self.presets[self.preset]

    @property
    def ends_otherwise(self) -> bool:
        """Whether something else than patience ends the run."""
        return self.target.value is not None or self.max_seconds is not None

    def fitted(self, train_samples: int) -> Self:
        """The job for a training split of this size: a batch of the preset's holds at most all of it.

        Raises:
            UserError: another batch size is larger than the split.
        """
        if self.batch_size > train_samples and self.batch_size != self.preset_values.train["batch_size"]:
            raise UserError(
                f"{errors.with_flag('batch_size')} is {self.batch_size:,} and the training split has {train_samples:,} "
                "samples, so that every step would see all of them: give at most that many.",
                field="batch_size",
            )
        return replace(self, batch_size=min(self.batch_size, train_samples))

    def run_settings(self, data: Any, train_samples: int, evaluations_per_epoch: int, **config: Any) -> dict[str, Any]:
        """The arguments of `labkit.Run`: the limits, and the configuration, to which `config` belongs, too."""
        skipped = data.info.get("skipped", {}).get("rows", 0)
        if skipped:
            first = data.info["skipped"]["first"][0]
            place = f"{first['file']}, line {first['line']}" if first["line"] else first["file"]
            print(f"Left out as bad: {skipped:,}; the first: {place}: {first['reason']}")
        for notice in data.info.get("notices", ()):
            print(f"Note: {notice}")
        about = {"name": data.name, "fingerprint": data.fingerprint, "train_samples": train_samples, "info": data.info}
        path = Path(self.data).expanduser()
        about["source"] = str(path.absolute()) if path.exists() else self.data
        return {
            "target": self.target,
            "max_seconds": self.max_seconds,
            "evaluate_every": max(1, train_samples // evaluations_per_epoch),
            "patience": None if self.ends_otherwise else PATIENCE_EPOCHS * evaluations_per_epoch,
            "seed": self.seed,
            "runs_dir": self.runs_dir,
            "config": self.recorded() | {"data": about} | config,
        }

    def recorded(self) -> dict[str, Any]:
        """The settings of the training as a run's record has them."""
        return {name: value for name, value in self.all_settings().items() if name not in RECORDED_ELSEWHERE}


@dataclass(frozen=True)
class DlrmJob(TrainingJob):
    """Trains a recommendation model on a click log to a target."""

    name: ClassVar[str] = "dlrm"
    title: ClassVar[str] = "DLRM"
    words: ClassVar[str] = "a recommendation model on a click log"
    presets: ClassVar[dict[str, Preset]] = DLRM_PRESETS
    metrics: ClassVar[tuple[str, ...]] = ("auc", "log_loss", "normalised_entropy", "accuracy")
    optimisers: ClassVar[tuple[str, ...]] = get_args(DlrmOptimiser)

    optimiser: DlrmOptimiser = setting(flags=("--optimizer",))
    schema: str | None = setting(metavar="FILE")
    """TOML file that describes the columns of --data"""
    placement: Placement = field(default=Placement(), metadata={"is_group": True})
    compress: Literal["none", "hash", "quotient-remainder"] = "none"
    """Method for embedding tables with fewer rows than there are categories"""
    compress_to: float = setting(1.0, metavar="SHARE")
    """Share of the tables' bytes that --compress may use, such as 0.1"""
    sharding: Literal["auto", "table", "row", "column", "data"] | None = setting()
    """How TorchRec shards the tables over processes (default: it does not); auto: its planner chooses for each"""

    def __post_init__(self):
        if self.schema is not None and self.data is None:
            said = f"schema {self.schema!r} describes a file of yours: name that file too, with --data."
            raise UserError(said, field="schema")
        super().__post_init__()
        method, share = self.compress, self.compress_to
        if not 0 < share <= 1 or (method == "none") != (share == 1):
            fix = "give a share above 0 and below 1 with --compress hash or quotient-remainder, and neither without"
            raise UserError(f"--compress is {method} and --compress-to {share:g}: {fix}.", field="compress_to")
        if method != "none" and self.placement.kind != "device":
            raise UserError(
                f"--compress {method} is for tables on the device, and these are {self.placement.kind}: omit one of "
                "the two.",
                field="compress",
            )
        why = ""  # sharded tables do not have these settings
        if self.optimiser == "adam":
            why = "--optimiser adam: FBGEMM's kernels have none on CPUs; give sgd, adagrad or rowwise-adagrad, and --lr"
        elif (self.sharding, self.optimiser) == ("column", "rowwise-adagrad"):
            why = (
                "--optimiser rowwise-adagrad: each part of a row would have a state of its own, which is another "
                "optimiser (losses differ by 1e-2 within 30 steps); choose --sharding row or table, or sgd or adagrad"
            )
        elif self.placement.kind != "device" or self.compress != "none":
            why = "--placement and --compress: omit either them or --sharding"
        if why and self.sharding is not None:
            raise UserError(f"--sharding {self.sharding} cannot be combined with {why}.", field="sharding")

    def refuse_large_tables(self, config: "models.DlrmConfig") -> None:
        """Stop before tables are made that, with their optimiser's state, need more than the budget or their tier has.

        Raises:
            UserError: the memory or the disk has no room for them; a cache has more rows than they have.
        """
        size = sum(config.num_rows), row_width(self.optimiser, config.embedding_dim)
        self.placement.refuse_full_disk(*size, Path(self.runs_dir), checkpoints=True)
        needed = self.compress_to * self.placement.memory_bytes(*size)
        holder, limit = memory_for_tables(self.placement)
        if needed > limit:
            raise UserError(
                f"preset {self.preset!r} on this data needs {hardware.size_text(needed)} for its embedding tables and "
                f"their optimiser state, and {holder} has {hardware.size_text(limit)} free: choose a smaller preset "
                "(kaggle, tour), data with smaller vocabularies, --placement disk, or --compress."
            )


@dataclass(frozen=True)
class SpeechJob(TrainingJob):
    """Trains a CTC recogniser on speech to a target."""

    name: ClassVar[str] = "speech"
    title: ClassVar[str] = "Speech recogniser"
    words: ClassVar[str] = "a CTC recogniser on speech"
    presets: ClassVar[dict[str, Preset]] = SPEECH_PRESETS
    metrics: ClassVar[tuple[str, ...]] = ("cer", "wer")
    optimisers: ClassVar[tuple[str, ...]] = get_args(SpeechOptimiser)

    optimiser: SpeechOptimiser = setting(flags=("--optimizer",))
    on_bad_row: Policy = "few"
    features: Literal["log-mel", "mel", "mfcc"] = "log-mel"
    """Features that the model hears"""
    layers: int | None = None
    """Number of residual or recurrent layers (default: the preset's)"""
    hidden: int | None = None
    """Width of recurrent layers (default: the preset's)"""
    clip_norm: float = setting()
    """Largest norm of the gradients; 0 does not clip"""

    def __post_init__(self):
        super().__post_init__()
        if self.clip_norm is None:
            object.__setattr__(self, "clip_norm", self.preset_values.train.get("clip_norm", 0.0))
        self.refuse_unless_above_zero("layers", "hidden")
        if self.hidden is not None and self.preset_values.model["kind"] == "conv":
            said = f"--hidden is the width of recurrent layers, and preset {self.preset} has none: omit it."
            raise UserError(said, field="hidden")
        if not 0 <= self.clip_norm < float("inf"):
            raise errors.wrong_value("clip_norm", self.clip_norm, "give a number above 0, or 0 for no clipping.")
        if self.layers is not None and self.layers > MOST_LAYERS:
            raise errors.wrong_value("layers", f"{self.layers:,}", f"give at most {MOST_LAYERS:,}: more take minutes.")

    @property
    def schedule(self) -> str:
        """Course of the learning rate after the warm-up: constant or cosine."""
        return self.preset_values.train.get("schedule", "constant")

    @property
    def warmup_steps(self) -> int:
        """Steps over which the learning rate rises to its value."""
        return self.preset_values.train.get("warmup_steps", 0)

    @property
    def ends_otherwise(self) -> bool:
        return super().ends_otherwise or self.schedule == "cosine"  # which is to come to its end

    def recorded(self) -> dict[str, Any]:
        more = {"clip_norm": self.clip_norm or None, "schedule": self.schedule, "warmup_steps": self.warmup_steps}
        return super().recorded() | more


@dataclass(frozen=True)
class ShapeJob(Job):
    """Times steps of a DLRM of any shape on random batches."""

    name: ClassVar[str] = "dlrm_shape"

    dense_dim: int = 64
    """Dense features per sample"""
    num_tables: int = 16
    """Sparse features, each with a table"""
    num_rows: int = 100_000
    """Rows of each table, the hash size"""
    pooling_factor: int = 8
    """Rows that a sample names in a table"""
    embedding_dim: int = 64
    """Numbers in a row"""
    mlp_width: int = 256
    """Width of each hidden layer"""
    mlp_depth: int = 3
    """Hidden layers of either MLP"""
    batch_size: int = 512
    """Samples per step"""
    zipf: float = 0.0
    """Exponent of how often rows are named; 0: all equally often"""
    optimiser: DlrmOptimiser = "sgd"
    """Optimiser"""
    kernels: Literal["plain", "fast"] = "fast"
    """Implementation, as for `labkit train dlrm`"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format"""
    device: str = setting("auto", metavar="D")
    """Device to compute on: auto, cpu, cuda or cuda:1"""
    seconds: float = setting(2.0, metavar="S")
    """Seconds of steps that are timed, and at least five steps"""
    seed: int = 0
    """Seed of weights and batches"""
    runs_dir: str = setting("runs", metavar="DIR")
    """Folder for the run folder"""
    placement: Placement = field(default=Placement(), metadata={"is_group": True})

    def __post_init__(self):
        self.refuse_unless_above_zero(
            *("dense_dim", "num_tables", "num_rows", "pooling_factor", "embedding_dim"),
            *("mlp_width", "mlp_depth", "batch_size", "seconds"),
        )
        if self.zipf < 0:
            raise errors.wrong_value("zipf", self.zipf, "give 0 (all rows alike) or more (some more often).")
        if self.placement.kind == "cached":
            self.placement.cached_rows(self.num_tables * self.num_rows)

    def refuse_too_large(self, budget: "hardware.Budget | None" = None) -> None:
        """Raise a UserError where memory, or the disk, has no room for the shape now.

        Args:
            budget: the budget of a run that is to come; None asks for this process.
        """
        size = self.num_tables * self.num_rows, row_width(self.optimiser, self.embedding_dim)
        self.placement.refuse_full_disk(*size, Path(self.runs_dir))
        tables, (holder, limit) = self.placement.memory_bytes(*size), memory_for_tables(self.placement, budget)
        batches = 4 * BATCHES * self.batch_size * (self.num_tables * self.pooling_factor + self.dense_dim)
        # the interaction's features and their products, each with a gradient: the least that a step needs as well
        features = self.num_tables + 1
        step = 4 * self.batch_size * features * 2 * (self.embedding_dim + features)
        if tables + 2 * batches + step > limit:  # random numbers are drawn wider than they are kept
            raise UserError(
                f"this shape needs {hardware.size_text(tables)} for its tables, {hardware.size_text(batches)} for "
                f"{BATCHES} batches and at least {hardware.size_text(step)} for a step, and {holder} has "
                f"{hardware.size_text(limit)} free: give fewer tables, rows, or samples per step."
            )


JOBS: dict[str, type[TrainingJob]] = {"dlrm": DlrmJob, "speech": SpeechJob}
"""The trainings that `labkit train` offers"""


def get_preset(job: str, name: str) -> Preset:
    """A job's preset.

    Raises:
        UserError: there is none of that name; the text names those that there are.
    """
    presets = JOBS[job].presets
    if name not in presets:
        raise UserError(f"preset {name!r} of {job} is unknown: choose one of {', '.join(presets)}.", field="preset")
    return presets[name]


def memory_for_tables(placement: Placement, budget: "hardware.Budget | None" = None) -> tuple[str, float]:
    """The device that tables in a place are on, and the bytes it has for them; inf if not known.

    These are the bytes of the budget of a run that is to come, or of the run that this process is.
    """
    harness, devices = tracking.current_harness(), hardware.get_devices()
    if harness is not None:
        budget = harness.command.budget
    computes_on = harness.torch_name if harness is not None else budget.torch_name if budget is not None else "cpu"
    torch_name = computes_on if placement.kind == "device" else "cpu"
    device = next((each for each in devices if each.torch_name == torch_name), devices[0])
    budget = budget if computes_on == torch_name else None
    there = hardware.read_cpu().memory_available_bytes if device.kind == "cpu" else device.memory_bytes
    allowed = budget.memory_bytes if budget is not None else None
    return device.name, allowed or there or float("inf")
