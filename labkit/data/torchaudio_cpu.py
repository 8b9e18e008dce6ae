"""torchaudio on a CPU-only torch.

The torchaudio wheels on PyPI link CUDA: importing one beside a CPU-only torch fails while its compiled
extension is loaded. Its transforms, datasets and models are Python and need no extension. So where the
plain import fails, a stand-in takes the place of the module that loads the extension, in this process only.
With the stand-in `rnnt_loss` and `forced_align` do not exist, and `lfilter` is slow.
"""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType

from labkit.errors import UserError

EXTENSION = "torchaudio._extension"
_IMPORTING = threading.Lock()
"""Held while one thread imports: the first import may fail half-way and be taken back."""


def import_torchaudio() -> ModuleType:
    """Import and return torchaudio, without its compiled extension where that cannot be loaded.

    Raises:
        UserError: torchaudio is not installed.
    """
    with _IMPORTING:
        try:
            return importlib.import_module("torchaudio")
        except ModuleNotFoundError as error:
            if error.name != "torchaudio":
                raise
            raise UserError(
                "Speech features are computed with torchaudio, which is not installed here. Install it with "
                "`pip install torchaudio` (conda: `conda install -c conda-forge torchaudio`) and run this again."
            ) from error
        except OSError:  # what torch raises for a library that does not load
            _forget()
        sys.modules[EXTENSION] = _stand_in()
        return importlib.import_module("torchaudio")


def _forget() -> None:
    """Remove what the failed import left behind, so that the next one starts afresh."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
        del sys.modules[name]


def _stand_in() -> ModuleType:
    """The names that torchaudio takes from its extension module, as if it had been built without one."""
    module = ModuleType(EXTENSION, "Stands in for torchaudio's compiled extension; see labkit.data.torchaudio_cpu.")
    module._IS_TORCHAUDIO_EXT_AVAILABLE = False
    module._IS_ALIGN_AVAILABLE = False
    module.fail_if_no_align = lambda function: function
    return module
