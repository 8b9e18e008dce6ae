"""What every job is: a frozen dataclass of settings, which a script takes from its harness or its command line.

A job crosses to other processes as JSON. It is read from text in one place: the command line of `labkit` or of the
script itself (`read_flags`), or a plan or sweep file (`Job.from_settings`). Nothing here needs torch.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import math
import re
import sys
import typing
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal, Self, TypeVar

from labkit import UserError, data, errors, json_data, placement, tracking

PATHS = ("data", "schema")
"""Settings that may be paths, which count from the folder of a plan"""
TEXTS = ("target", "cache_rows", "memory_cap")
"""Settings that may also be texts, such as cer=0.1, 10% and 256MiB"""
METAVARS = {int: "N", float: "X"}
OF_THE_HARNESS = ("device", "runs_dir")
"""Settings that a plan or sweep decides for all of its runs"""


def setting(default: Any = None, **metadata: Any) -> Any:
    """A field of a job: `metavar` names its value in the help, `flags` are further spellings of its flag."""
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Setting:
    """One setting of a kind of job, as command lines and plans see it."""

    name: str
    shape: Any
    """The type of its values"""
    words: str
    """The docstring under its field"""
    field: dataclasses.Field
    group: str | None = None
    """The field of the job whose value has it, such as placement"""

    @property
    def choices(self) -> tuple[str, ...]:
        return typing.get_args(self.shape) if typing.get_origin(self.shape) is Literal else ()

    @property
    def kind(self) -> Any:
        """How `labkit.launch.rows.read_setting`, and argparse, read it: choices, int, float, or str."""
        return self.choices or (self.shape if self.shape in (int, float) and self.name not in TEXTS else str)

    def of(self, job: "Job") -> Any:
        """The value that a job has."""
        return getattr(getattr(job, self.group) if self.group else job, self.field.name)

    def checked(self, value: Any) -> Any:
        """The value as the field has it: a whole number may stand for a number, and a Path for a text.

        Raises:
            UserError: it is of another type, or none of the choices.
        """
        if self.name == "target" or (self.name in TEXTS and not isinstance(value, float)):
            return value  # read by the dataclass that it becomes; a target may be a number, too
        value = str(value) if isinstance(value, PurePath) else value.item() if hasattr(value, "item") else value
        try:
            json_data.check_shape(value, str if self.shape is Path else self.shape, errors.with_flag(self.name))
        except ValueError as error:
            raise UserError(f"{error}.", field=self.name) from None
        return self.shape(value) if self.shape in (float, Path) else value


@dataclass(frozen=True)
class Job:
    """A training script and all of its settings; a reader's own inherits from it, too (docs/own-script.md)."""

    name: ClassVar[str] = ""
    """Name of the script in `labkit/jobs`, without .py"""
    takes_seed: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """What it trains, for tables."""
        return self.name

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], folder: Path | str = "") -> Self:
        """The job of these settings by name; None stands for one that is not given.

        Args:
            settings: typed values, such as `{"batch_size": 512, "placement": "cached", "cache_rows": "10%"}`.
            folder: the folder of the plan, from which paths of data count if they lead to something there.

        Raises:
            UserError: the job has no such setting, or refuses a value; its field is the setting's name.
        """
        known, values, grouped = settings_of(cls), {}, {}
        for name, value in settings.items():
            if value is None:
                continue
            if name not in known:
                raise UserError(f"{errors.with_flag(name)} is unknown: {errors.did_you_mean(name, known)}", field=name)
            about = known[name]
            path = Path(value) if name in PATHS else Path()
            if (path.suffix or len(path.parts) > 1) and (Path(folder) / path).exists():  # a dataset's name stays
                value = Path(folder) / path
            inner = values if about.group is None else grouped.setdefault(about.group, {})
            inner[about.field.name] = about.checked(value)
        shapes = _shapes(cls)
        return cls(**values, **{group: shapes[group](**inner) for group, inner in grouped.items()})

    @classmethod
    def kinds(cls) -> dict[str, Any]:
        """The kinds of the settings that a plan may give, as `labkit.launch.read_settings` takes them."""
        return {name: about.kind for name, about in settings_of(cls).items() if name not in OF_THE_HARNESS}

    def settings(self) -> dict[str, Any]:
        """The fewest settings that make this job, by name, without those that its preset has anyway."""
        about = settings_of(type(self))
        kept = {name: each.of(self) for name, each in about.items()}
        kept = {name: value for name, value in kept.items() if value not in (None, about[name].field.default)}
        for name in [name for name in kept if about[name].field.default is None]:  # perhaps the preset says the same
            rest = {other: value for other, value in kept.items() if other != name}
            with contextlib.suppress(UserError):  # for example, a learning rate that only this optimiser takes
                if self.from_settings(rest) == self:
                    kept = rest
        return kept

    def all_settings(self) -> dict[str, Any]:
        """All settings that have a value, by name, as a run's record has them."""
        values = {name: about.of(self) for name, about in settings_of(type(self)).items()}
        return {name: placement.flag_text(name, value) for name, value in values.items() if value is not None}

    def with_settings(self, **settings: Any) -> Self:
        """The job with other settings; those that follow from them are computed again."""
        return self.from_settings(self.settings() | settings)

    def to_json(self) -> dict[str, Any]:
        """JSON-able data, from which `job_from_json` makes the job."""
        return {"job": self.name, "settings": json_data.to_json(self.settings())}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The equivalent command line, for people to read."""
        return as_flags(self.settings())

    @classmethod
    def script(cls) -> Path:
        """The file of the script."""
        return Path(__file__).with_name(f"{cls.name}.py")

    def command(self, **harness: Any) -> "tracking.ScriptCommand":
        """What runs the job; `harness` are further fields of `ScriptCommand`."""
        return tracking.ScriptCommand(str(self.script()), self.arguments, settings=self.to_json(), **harness)

    def refuse_unless_above_zero(self, *names: str) -> None:
        """Check settings that are numbers above 0, or None."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                whole = "whole " if settings_of(type(self))[name].shape is int else ""
                raise errors.wrong_value(name, value, f"give a {whole}number above 0.")


@dataclass(frozen=True)
class ScriptJob:
    """A script of the reader's, whose settings labkit does not know."""

    name: ClassVar[str] = "script"
    path: str
    """Path of a Python file"""
    arguments: tuple[str, ...] = ()
    """Arguments of the script, one per item; {seed} stands for the seed"""
    module: str | None = None
    """Name of the module, if it runs as `python -m` does"""

    @property
    def takes_seed(self) -> bool:
        return any(tracking.SEED in argument for argument in self.arguments)

    @property
    def label(self) -> str:
        """Name of the script, for tables."""
        return Path(self.path).name

    def to_json(self) -> dict[str, Any]:
        """JSON-able data, from which `job_from_json` makes the job."""
        return {"job": self.name, "settings": dataclasses.asdict(self)}

    def command(self, **harness: Any) -> "tracking.ScriptCommand":
        """What runs the script; `harness` are further fields of `ScriptCommand`."""
        return tracking.ScriptCommand(self.path, self.arguments, module=self.module, **harness)


AnyJob = TypeVar("AnyJob", bound=Job)


def read_job(kind: type[AnyJob]) -> AnyJob:
    """The settings of this process' script: from the command that its harness runs, else from its command line.

    Raises:
        UserError: a setting cannot be. Flags that are not understood end the process, with status 2.
    """
    harness = tracking.current_harness()
    command = tracking.ScriptCommand() if harness is None else harness.command
    settings = read_flags(kind) if command.settings is None else command.settings["settings"]
    if harness is not None and "runs_dir" in settings_of(kind):  # the folder of the run decides where its tables are
        settings = settings | {"runs_dir": command.runs_dir}
    return kind.from_settings(settings)


def job_flags(kind: type[Job], prog: str | None = None, omit: Collection[str] = ()) -> ArgumentParser:
    """The flags of a kind of job, but for those in `omit`. The help shows the defaults of its default preset."""
    # tyro would make them, too, but needs 0.25 s to import and 0.2 s for a help of three flags (two cores of an AMD
    # EPYC), and its spellings, boxes and errors differ from those of all other commands of labkit
    about = (kind.__doc__ or "").partition("\n")[0]
    with_help = "help" not in omit
    parser = ArgumentParser(prog, None, about, add_help=with_help, allow_abbrev=False, argument_default=SUPPRESS)
    usual = kind()
    for name, setting in settings_of(kind).items():
        if name in omit:
            continue
        spellings = f"--{name.replace('_', '-')}", *setting.field.metadata.get("flags", ())
        options: dict[str, Any] = {"dest": name, "help": _help(kind, setting, setting.of(usual))}
        if setting.shape is bool:
            options["action"] = BooleanOptionalAction
        elif setting.choices:
            options["choices"] = setting.choices
        else:
            options["type"] = setting.kind
            options["metavar"] = setting.field.metadata.get("metavar") or METAVARS.get(setting.shape, "TEXT")
        parser.add_argument(*spellings, **options)
    return parser


def read_flags(
    kind: type[Job], arguments: Sequence[str] | None = None, *, prog: str | None = None, usage: str | None = None
) -> dict[str, Any]:
    """The settings that a command line gives, by name, for `Job.from_settings`; None reads that of this process.

    Flags that are not understood end the process with a message and status 2, as argparse does it.
    """
    parser = job_flags(kind, prog)
    parser.usage = usage
    given = sys.argv[1:] if arguments is None else arguments
    # --num_rows is understood as --num-rows is
    return vars(parser.parse_args([re.sub(r"^--\w+", lambda flag: flag[0].replace("_", "-"), each) for each in given]))


def _help(kind: type[Job], setting: Setting, usual: Any) -> str:
    words = setting.words.replace("{policies}", data.POLICY_WORDS)
    words = words.replace("{presets}", ", ".join(map(str, getattr(kind, "presets", {}).values())))
    words = words.replace("{metrics}", ", ".join(getattr(kind, "metrics", ())))
    if usual is None or "(default" in words:
        text = words
    elif setting.field.default is None:
        text = f"{words} (default: the preset's; tour: {placement.flag_text(setting.name, usual)})"
    else:
        number = f"{usual:,}" if isinstance(usual, int) else placement.flag_text(setting.name, usual)
        text = f"{words} (default: {number})"
    return text.replace("%", "%%")


@functools.cache
def settings_of(kind: Any) -> dict[str, Setting]:
    """The settings of a kind of job by name, with those of a grouped field, such as placement, among its own."""
    found, shapes, words = {}, _shapes(kind), _docstrings(kind)
    for each in dataclasses.fields(kind):
        shape = _without_none(shapes[each.name])
        if not each.metadata.get("is_group"):
            found[each.name] = Setting(each.name, shape, words.get(each.name, ""), each)
            continue
        for inner in settings_of(shape).values():
            name = each.name if inner.name == "kind" else inner.name
            found[name] = dataclasses.replace(inner, name=name, group=each.name)
    return found


def as_flags(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings as a command line, without those that are None.

    >>> as_flags({"batch_size": 512, "lr": 1e-3, "schema": None, "fused": False})
    ('--batch-size', '512', '--lr', '0.001', '--no-fused')
    """
    flags: list[str] = []
    for name, value in settings.items():
        if isinstance(value, bool):
            flags.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
        elif value is not None:
            flags += [f"--{name.replace('_', '-')}", str(placement.flag_text(name, value))]
    return tuple(flags)


_shapes = functools.cache(typing.get_type_hints)


def _docstrings(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a dataclass and of those that it inherits from, from their source."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        try:
            (definition,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(each))).body
        except OSError:  # typed into a console
            continue
        for statement, below in itertools.pairwise(definition.body):  # ty: ignore[missing-attribute]  # a class
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


def _without_none(shape: Any) -> Any:
    inner = typing.get_args(shape)
    return next(each for each in inner if each is not type(None)) if type(None) in inner else shape
