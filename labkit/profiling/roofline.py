"""The operators of a profile on the machine's roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.profiling.work.operators import operators_at_work

if TYPE_CHECKING:
    import pandas as pd

    from labkit.profiling.profile import Profile


WORTH_A_POINT = 0.005
"""Share of the time; what an operator that took less achieved says little."""


def roofline_frames(profile: Profile, most: int = 12) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Roofs and points for `labkit.plots.roofline.figure_roofline`.

    Args:
        profile: with shapes.
        most: operators, those that take the longest.

    Returns:
        roofs: columns name, provenance, peak_gflops, bandwidth_gb_per_s: one in fp32 and one in bf16.
        marks: columns name, provenance, flop_per_byte, gflops; an operator without arithmetic has no place.
    """
    import pandas as pd

    card = profile.card
    roofs = pd.DataFrame(
        [(name, profile.provenance, peak) for name, peak in (("fp32", card.fp32_gflops), ("bf16", card.bf16_gflops))],
        columns=["name", "provenance", "peak_gflops"],
    ).assign(bandwidth_gb_per_s=card.bandwidth_gb_per_s)
    done = operators_at_work(profile.trace)
    done = done[(done["flop"] > 0) & (done["time_us"] > WORTH_A_POINT * profile.time.total_us)].head(most)
    marks = pd.DataFrame(
        {
            "name": done["operator"],
            "provenance": profile.provenance,
            "flop_per_byte": done["flop_per_byte"],
            "gflops": done["gflop_per_s"],
        }
    )
    return roofs, marks.reset_index(drop=True)
