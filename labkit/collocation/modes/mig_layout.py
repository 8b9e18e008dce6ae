"""A MIG layout for jobs that find no slice: which instances to make, and the commands that make and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.collocation.modes.mig_profiles import MigProfile, Placement


@dataclass(frozen=True)
class MigLayout:
    """GPU instances to make beside those that there are."""

    gpu_uuid: str
    instances: tuple[tuple[MigProfile, Placement], ...]

    @property
    def tuples(self) -> str:
        """The instances as nvidia-smi takes them: profile and start, such as 3g.20gb:0,3g.20gb:4."""
        return ",".join(f"{profile.name}:{place.start}" for profile, place in self.instances)

    def make_command(self) -> list[str]:
        """The command that makes the instances, with a compute instance each."""
        return ["nvidia-smi", "mig", "-i", self.gpu_uuid, "-cgi", self.tuples, "-C"]

    def advice(self) -> str:
        """What an administrator types to make and to remove it, as a sentence."""
        remove = f"sudo nvidia-smi mig -i {self.gpu_uuid}"
        return (
            f"A layout that fits: `sudo {' '.join(self.make_command())}`, which prints the IDs of what it makes. To "
            f"undo it: `{remove} -dci -gi IDS && {remove} -dgi -gi IDS` with these IDs, such as 1,2"
        )


@dataclass(frozen=True)
class SliceWish:
    """What one job needs of a slice."""

    profile: str | None = None
    memory_bytes: int | None = None


def fitting_layout(
    gpu_uuid: str, wishes: Sequence[SliceWish], profiles: Sequence[MigProfile], taken: Sequence[Placement] = ()
) -> MigLayout | None:
    """The layout with the largest equal slices in which each job has one; None where there is none.

    A job that asks for a profile gets that. Each other one gets the smallest slice that holds its memory and is no
    smaller than what all get: the whole GPU if that fits, then the next profile, and so on.

    Args:
        gpu_uuid: of the GPU.
        wishes: one for each job.
        profiles: what the GPU offers.
        taken: where other instances lie, which stay.
    """
    plain = [profile for profile in profiles if profile.is_plain]
    for least in sorted(plain, key=_size, reverse=True):
        chosen = [_smallest(wish, least, profiles) for wish in wishes]
        if None in chosen:
            continue
        # the large ones first: they have the fewest places
        ordered = sorted(chosen, key=lambda profile: -profile.memory_bytes)
        placed = _place(ordered, list(taken))
        if placed is not None:
            return MigLayout(gpu_uuid, tuple(zip(ordered, placed, strict=True)))
    return None


def _smallest(wish: SliceWish, least: MigProfile, profiles: Sequence[MigProfile]) -> MigProfile | None:
    if wish.profile is not None:
        fitting = [each for each in profiles if each.name == wish.profile]
    else:
        fitting = [
            each
            for each in profiles
            if each.is_plain and each.slices >= least.slices and each.memory_bytes >= least.memory_bytes
        ]
    fitting = [each for each in fitting if each.memory_bytes >= (wish.memory_bytes or 0)]
    return min(fitting, key=_size, default=None)


def _size(profile: MigProfile) -> tuple[int, int]:
    return profile.slices, profile.memory_bytes


def _place(profiles: Sequence[MigProfile], taken: list[Placement]) -> list[Placement] | None:
    """A place for each profile that meets no other; tries them all, of which a GPU has at most eight."""
    if not profiles:
        return []
    for place in profiles[0].placements:
        if not any(place.meets(other) for other in taken):
            rest = _place(profiles[1:], [*taken, place])
            if rest is not None:
                return [place, *rest]
    return None
