"""A compiled function as an object file: what is stored of it, and what it needs from outside."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WORD_BYTES = 8
WORDS = 3
"""Per array in a row of a table (``sim/jit/references.py``): its address, and the lengths of its first two axes."""
OF_WORDS = "of_words"
"""How the name of a function begins that takes the arguments of another from words."""
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
"""An entry of a symbol table: System V ABI, ELF-64, Elf64_Sym."""
_OF_NUMBA = "NRT_Free"
"""Whoever needs it needs numba, which gives whatever its code can need."""
_OF_LINKERS = frozenset({"", "_GLOBAL_OFFSET_TABLE_"})


class MachineCode(NamedTuple):
    """A function as an object file: its name there, what it returns, and the names that it needs from outside.

    ``returns``: "int64", "bool", "float64" or "none".
    """

    symbol: str
    returns: str
    needs: tuple[str, ...]
    code: bytes


class CodePlace(NamedTuple):
    """Where a function lies, and the one that takes its arguments from words."""

    address: int
    of_words: int


def needs_of(code: bytes) -> tuple[str, ...]:
    """Return the names that an object file needs from outside; of a kind other than ELF of 64 bits: one of numba's."""
    if code[:6] != b"\x7fELF\x02\x01":
        return (_OF_NUMBA,)
    start, size, number = (
        int.from_bytes(code[at : at + n], "little") for at, n in ((0x28, 8), (0x3A, 2), (0x3C, 2))
    )
    headers = [np.frombuffer(code, "<u8", 8, offset=start + i * size) for i in range(number)]
    (symbols,) = (each for each in headers if int(each[0]) >> 32 == 2)  # SHT_SYMTAB
    names = headers[int(symbols[5]) & 0xFFFFFFFF]  # sh_link
    table = np.frombuffer(code, _SYMBOL, int(symbols[4]) // _SYMBOL.itemsize, offset=int(symbols[3]))
    found = set()
    for place in table["name"][table["section"] == 0].tolist():
        at = int(names[3]) + place
        found.add(code[at : code.index(b"\0", at)].decode())
    return tuple(sorted(found - _OF_LINKERS))
