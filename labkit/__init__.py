"""labkit: what does it cost to reach this accuracy, on this hardware, run this way?

`labkit.Run` is the one thing a training script needs. `labkit.device` names what to compute on, and
`labkit.energy.window` marks a span of a run whose energy is reported. Everything else is in the rooms, such as
`labkit.tta` and `labkit.plots`.
"""

import sys

import lazy_loader

from labkit.project import VERSION

# Whatever needs torch, Arrow or pandas loads when it is first used, so that `import labkit` takes no time.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = VERSION


_MOVED = {"course": "labkit_course", "collocation": "labkit.sharing", "plan_files": "labkit.launch"}
_MOVED |= {"sweep": "labkit.launch", "tour": "labkit.launch"}


class _Moved:
    """For one version, an import of a package that moved says where it is now."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        package, _, room = name.partition(".")
        if package == "labkit" and room in _MOVED:
            raise ModuleNotFoundError(f"{name} is {_MOVED[room]} now: import from there", name=name)


sys.meta_path.append(_Moved)  # last, so that it is asked only for what does not exist
