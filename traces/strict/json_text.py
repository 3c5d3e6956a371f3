"""Untrusted JSON to values, with limits on bytes (also unpacked), on nesting and on the digits of a number."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from traces.errors import TraceError, VtwinError
from traces.strict.whole_file import MOST_BYTES, whole_file

MOST_DIGITS: Final = 20
"""An int64 has 19, and a double resolves 17."""

_LONG_TEXT: Final = re.compile("[0-9]{19}")
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_BYTES: Final = b"0" * 19

_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20


def parse_value(text: bytes | str) -> object:
    """Return the value in JSON text. Raises ValueError, in one line, for any error.

    The fast reader gets only plain text: it would turn long integers into floats, and has other error messages.
    """
    if not _has_long(text):
        with suppress(ValueError):
            return orjson.loads(text)
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError as fault:
        raise ValueError("values nested too deep") from fault
    except UnicodeDecodeError as fault:
        raise ValueError(f"bytes that are no text, at {fault.start}") from fault


def parser_of(content: bytes) -> Callable[[bytes], object]:
    """Return ``parse_value`` for the lines of a text, faster if no line has a long integer."""
    return parse_value if _has_long(content) else _parse_plain


def _parse_plain(line: bytes) -> object:
    try:
        return orjson.loads(line)
    except ValueError:
        return parse_value(line)  # which has the error message


def _has_long(text: bytes | str) -> bool:
    """Return whether there is a row of digits too long for an int64; in bytes without a slow regular expression."""
    if isinstance(text, bytes):
        return _LONG_BYTES in text.translate(_ZEROS)
    return _LONG_TEXT.search(text) is not None


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def finite(value: object) -> float:
    """Return a value as a finite number. Raises ValueError or TypeError."""
    number = float(value)  # type: ignore[arg-type]  # what is no number raises
    if not abs(number) < float("inf"):
        raise ValueError(f"{number}, which is no finite number")
    return number


def read_bytes(
    path: Path, *, expected: str, error: type[VtwinError] = TraceError, most: int = MOST_BYTES
) -> bytes:
    """Return a file's bytes, unpacked where they are gzip's.

    Raises ``error``, one line, for a file that cannot be read, is a damaged gzip file, or unpacks to more than
    ``most``.
    """
    try:
        content = whole_file(path, most=most)
    except OSError as fault:
        raise error(f"{path}: got {fault.strerror}, expected {expected}") from fault
    if content[:2] != _GZIP:
        return content
    try:
        return b"".join(unpacked(content, most=most))
    except (EOFError, zlib.error) as fault:
        raise error(f"{path.name}: got {fault}, expected a whole gzip file ({path})") from fault
    except TooLarge as fault:
        raise error(
            f"{path.name}: got a packed file of more than {most:,} bytes, expected fewer ({path})"
        ) from fault


class TooLarge(Exception):  # noqa: N818 - told as an error of the caller's
    """Packed bytes unpack to more than the limit."""


def unpacked(content: bytes, *, most: int) -> list[bytes]:
    """Return the content of gzip's bytes, in pieces. Raises TooLarge beyond ``most``, else EOFError or zlib.error."""
    parts: list[bytes] = []
    total, rest = 0, content
    while rest:  # a gzip file may have several members
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            part = member.decompress(rest, _CHUNK)
            rest = member.unconsumed_tail
            if not part and not rest and not member.eof:
                raise EOFError("a file that ends too early")
            parts.append(part)
            total += len(part)
            if total > most:
                raise TooLarge
        rest = member.unused_data.lstrip(b"\0")
    return parts
