"""radT's grids in YAML (itu-rad/radt, examples/yaml) as sweeps."""

from typing import Any

from labkit.launch.mix_file import NOTHING, SAMPLED
from labkit.launch.rows import Mistakes, Row, safe_name

IGNORED = ("experiment", "workload", "method")
"""Fields that number radT's rows, or say what is checked here"""


def is_radt_grid(top: Row) -> bool:
    """Whether the fields of a plan are those of radT's grid."""
    return {"file", "parameters"} <= top.keys() and not {"job", "script", "jobs"} & top.keys()


def as_sweep(top: Row, mistakes: Mistakes) -> Row:
    """The fields of a sweep that a grid stands for; what a sweep cannot do is noted."""
    fields: dict[str, Any] = {"script": top["file"]}
    places = {"script": top.places["file"], "grid": top.places["parameters"], "settings": top.places["parameters"]}
    if "name" in top:
        fields["name"], places["name"] = safe_name(str(top["name"])), top.places["name"]
    if (method := top.get("method", "grid")) != "grid":
        said = f"{method!r} draws settings: write them under random in a sweep (docs/sweeps.md), or use method: grid."
        mistakes.add_field(top, "method", said)
    if str(way := top.get("collocation", "-")).lower() not in NOTHING:
        said = f"a sweep runs a cell at a time, not {way}: use `labkit collocate` with a CSV of radT's, or remove it."
        mistakes.add_field(top, "collocation", said)
    if str(device := top.get("devices", "0")).lower() not in (*NOTHING, "0", "cpu"):
        said = f"a sweep runs on the first device: start it with CUDA_VISIBLE_DEVICES={device}, and remove this."
        mistakes.add_field(top, "devices", said)
    listeners = str(top.get("listeners", "-")).lower().replace(" ", "").split("+")
    if profilers := [each for each in listeners if each not in (*SAMPLED, *NOTHING)]:
        said = f"{', '.join(profilers)} is no sampler: remove it; `labkit profile run` runs a script under a profiler."
        mistakes.add_field(top, "listeners", said)
    for name, value in top.items():
        if name not in ("name", "file", "parameters", "collocation", "devices", "listeners", *IGNORED):
            fields[name], places[name] = value, top.places[name]  # fields of a sweep can be added, such as seeds
    parameters = top["parameters"]
    if not isinstance(parameters, Row):
        mistakes.add_field(top, "parameters", "this must be fields: write each in a line of its own, as `name: value`.")
        return Row(fields, top.place, places)
    grid, settings = {}, {}
    for name, given in parameters.items():
        if isinstance(given, Row):
            found = [given[key] for key in ("values", "value") if key in given]
            if len(given) != 1 or not found:
                said = f"it has {', '.join(given) or 'nothing'}: give it values: [...], or value: ... (docs/sweeps.md)."
                mistakes.add_field(parameters, name, said)
                continue
            given = found[0]
        (grid if isinstance(given, list) else settings)[name] = given
    for field, chosen in (("grid", grid), ("settings", settings)):
        if chosen:
            fields[field] = Row(chosen, parameters.place, {name: parameters.places[name] for name in chosen})
    return Row(fields, top.place, places)
