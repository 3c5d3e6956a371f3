"""Machine code at work: an object file is loaded by LLVM alone, and lies at an address that Python calls.

What an object needs from outside must be there before LLVM relocates it, since LLVM ends the process where something
lacks. A plain function needs a few of the C library's; what numba gives is there once numba has been imported.
"""

from __future__ import annotations

import threading
from typing import Any

import llvmlite.binding as llvm

from sim.jit.object_file import OF_WORDS, CodePlace, MachineCode

_loaded: list[Any] = []
"""Keeps what has been loaded where it is, to the end of the process."""
_one_at_a_time = threading.Lock()


def place_of(stored: MachineCode) -> CodePlace | None:
    """Load a function and return where it lies; None: it needs what this process cannot give."""
    with _one_at_a_time:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        if not _are_there(stored.needs):  # an engine knows what the process has
            from sim.jit.linking import give_symbols

            give_symbols()
            if not _are_there(stored.needs):
                return None
        engine.add_object_file(llvm.ObjectFileRef.from_data(stored.code))
        engine.finalize_object()
        _loaded.append(engine)
        return CodePlace(*map(engine.get_function_address, (stored.symbol, OF_WORDS + stored.symbol)))


def _are_there(names: tuple[str, ...]) -> bool:
    return all(llvm.address_of_symbol(name) for name in names)


def _machine() -> Any:  # noqa: ANN401 - llvmlite is untyped
    """Return a description of this machine, for one engine, which then owns it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    reloc = "static" if target.name.startswith("x86") else "default"  # as numba generates it
    return target.create_target_machine(reloc=reloc, codemodel="jitdefault", jit=True)
