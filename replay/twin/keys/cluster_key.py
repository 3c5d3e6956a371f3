"""A key of ``cluster:`` by what it holds, in one line of its table."""

from __future__ import annotations

from replay.twin.keys.key import Key


def number(path: str, default: object, meaning: str) -> Key:
    """Return a key of ``cluster`` that holds a number."""
    return Key(path=f"cluster.{path}", kind="number", default=str(default), meaning=meaning)


def integer(path: str, default: object, meaning: str, *, least: int = 0) -> Key:
    """Return a key of ``cluster`` that holds a whole number."""
    return Key(path=f"cluster.{path}", kind="integer", default=str(default), meaning=meaning, least=least)


def flag(path: str, meaning: str) -> Key:
    """Return a key of ``cluster`` that holds true or false, false without it."""
    return Key(path=f"cluster.{path}", kind="boolean", default="false", meaning=meaning)


def mapping(path: str, default: str, meaning: str) -> Key:
    """Return a key of ``cluster`` that holds a section."""
    return Key(path=f"cluster.{path}", kind="mapping", default=default, meaning=meaning)


def choice(path: str, choices: tuple[str, ...], meaning: str) -> Key:
    """Return a key of ``cluster`` that holds one of several names, the first without it."""
    return Key(path=f"cluster.{path}", kind="choice", default=choices[0], meaning=meaning, choices=choices)


def listed(path: str, meaning: str) -> Key:
    """Return a key of ``cluster`` that holds a list."""
    return Key(path=f"cluster.{path}", kind="mapping", default="none", meaning=meaning)
