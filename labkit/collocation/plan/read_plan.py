"""A plan, whatever kind of file it is in."""

from __future__ import annotations

from pathlib import Path

from labkit.collocation.plan.csv_plan import read_csv_plan
from labkit.collocation.plan.plan import Plan
from labkit.errors import UserError


def read_plan(path: Path, default_mode: str | None = None) -> Plan:
    """Read a plan by its suffix: YAML, or radT's CSV, of which `read_csv_plan` tells more.

    Args:
        path: of the file.
        default_mode: that counts where a YAML file says none.

    Raises:
        UserError: with every mistake, one a row.
    """
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        from labkit.collocation.plan.yaml_plan import read_yaml_plan

        return read_yaml_plan(path, default_mode)
    if suffix == ".csv":
        return read_csv_plan(path).plan
    raise UserError(f"{path} is no plan: its name must end in .yaml, .yml or .csv.")
