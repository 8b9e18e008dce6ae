"""The mark that callgrind sees: valgrind's client request from compiled code. Importing this module needs numba.

On a CPU the instructions of a client request change nothing. These are the ones of x86-64, as in valgrind.h.
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from labkit.indexes.btree import run
from labkit.indexes.kernels import kernel

ASSEMBLY = "rolq $$3, %rdi; rolq $$13, %rdi; rolq $$61, %rdi; rolq $$51, %rdi; xchgq %rbx, %rbx"
START, STOP = 0x43540004, 0x43540005
"""Requests of callgrind.h: START_INSTRUMENTATION and STOP_INSTRUMENTATION, of the tool "CT" """

binding.initialize_native_asmparser()  # without it LLVM aborts the process


def _generated(context: Any, arguments: Any) -> Any:
    """The code that asks valgrind for something; `arguments` are the request and five more words."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        word = ir.IntType(64)
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, given[0])
        kind = ir.FunctionType(word, [word, word])
        asked = builder.ptrtoint(array.data, word)
        constraints = "={rdx},{rax},0,~{cc},~{memory}"
        return builder.asm(kind, ASSEMBLY, constraints, [asked, ir.Constant(word, 0)], side_effect=True)

    return types.int64(arguments), generate


client_request: Any = intrinsic(_generated)


@kernel
def marked(index, kinds, keys, arguments, found, values, start, words):
    """`run` as the region that is counted; `words` are six, for the requests."""
    words[0] = START
    client_request(words)
    done = run(index, kinds, keys, arguments, found, values, start)
    words[0] = STOP
    client_request(words)
    return done


def new_words() -> np.ndarray:
    return np.zeros(6, np.int64)
