"""Untrusted JSON to values, with limits on bytes (also unpacked), on nesting and on the digits of a number."""

from __future__ import annotations

import gzip
import io
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
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_BYTES: Final = b"0" * 19

_GZIP: Final = b"\x1f\x8b"
DAMAGED: Final = (EOFError, zlib.error, gzip.BadGzipFile)
"""What ``unpacked`` raises for bytes that are not whole gzip."""
_CHUNK: Final = 1 << 20


def parse_value(text: bytes | str) -> object:
    """Return the value in JSON text, half a character in it as U+FFFD. Raises ValueError, in one line, for any error.

    The fast reader gets only plain text: it would turn long integers into floats, and has other error messages.
    """
    if not _has_long(text):
        with suppress(ValueError):
            return orjson.loads(text)
    try:
        value = json.loads(text, parse_int=_integer)
        return _whole(value) if _has_half(text) else value
    except RecursionError as fault:
        raise ValueError("values nested too deep") from fault
    except UnicodeDecodeError as fault:
        raise ValueError(f"bytes that are no text, at {fault.start}") from fault


def _has_half(text: bytes | str) -> bool:
    """Return whether there is a surrogate, escaped or not, which may stand without its other half."""
    return _SURROGATE.search(text if isinstance(text, str) else text.decode("utf-8", "replace")) is not None


def _whole(value: object) -> object:
    """Return a value whose texts can be written: surrogates without their other half are replaced."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(each) for key, each in value.items()}
    return value


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
    except DAMAGED as fault:
        raise error(f"{path.name}: got {fault}, expected a whole gzip file ({path})") from fault
    except TooLarge as fault:
        raise error(
            f"{path.name}: got a packed file of more than {most:,} bytes, expected fewer ({path})"
        ) from fault


class TooLarge(Exception):  # noqa: N818 - told as an error of the caller's
    """Packed bytes unpack to more than the limit."""


def unpacked(content: bytes, *, most: int) -> list[bytes]:
    """Return the content of gzip's bytes, in pieces. Raises TooLarge beyond ``most``, else one of ``DAMAGED``."""
    parts: list[bytes] = []
    total = 0
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        while part := file.read(_CHUNK):
            parts.append(part)
            total += len(part)
            if total > most:
                raise TooLarge
    return parts
