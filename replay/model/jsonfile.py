"""A JSON object whose fields know their file: every complaint is one line that names file, field and what would do."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from traces.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """One JSON object; absent fields and null read as None."""

    file: str
    where: str
    values: Mapping[str, object]

    def fail(self, key: str, *, got: str, expected: str, nearest: Iterable[str] = ()) -> NoReturn:
        """Raise ConfigError about one field."""
        names = difflib.get_close_matches(got.strip("'\""), list(nearest), n=3, cutoff=0.0)
        hint = f" (nearest: {', '.join(names)})" if names else ""
        raise ConfigError(f"{self.where}{key}: got {got}, expected {expected}{hint} ({self.file})")

    def integer(self, *keys: str) -> int | None:
        """Return the whole number under the first of these keys that is there."""
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    self.fail(key, got=shown(value), expected="an integer >= 0")
                return value
        return None

    def needed(self, *keys: str) -> int:
        """Return the same; raise ConfigError, naming the most alike field of the file, where none is there."""
        value = self.integer(*keys)
        if not value:
            alike = [key for key in self.values if key not in keys]
            near = difflib.get_close_matches(keys[0], alike, n=1, cutoff=0.5)
            hint = f"; the file has {near[0]}" if near else ""
            got = "nothing" if value is None else "0"
            self.fail(keys[0], got=got, expected=f"an integer >= 1{hint}")
        return value

    def text(self, *keys: str) -> str | None:
        """Return the text under the first of these keys that is there."""
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                if not isinstance(value, str):
                    self.fail(key, got=shown(value), expected="text")
                return value
        return None

    def flag(self, key: str) -> bool | None:
        """Return true, false or None."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            self.fail(key, got=shown(value), expected="true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; an absent one is empty."""
        return tuple(str(item) for item in self.items(key))

    def items(self, key: str) -> tuple[object, ...]:
        """Return a list; an absent one is empty."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fail(key, got=shown(value), expected="a list")
        return tuple(value)

    def mapping(self, key: str) -> Fields | None:
        """Return the object under a key."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fail(key, got=shown(value), expected="an object")
        return Fields(file=self.file, where=f"{self.where}{key}.", values=value)

    def mappings(self) -> Iterator[Fields]:
        """Yield every value that is an object."""
        for key, value in self.values.items():
            if isinstance(value, dict):
                yield Fields(file=self.file, where=f"{self.where}{key}.", values=value)


def read_fields(path: Path) -> Fields:
    """Return the object that a JSON file holds. Raises ConfigError."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"file: got nothing at this path, expected a config.json ({path})") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"file: got one that cannot be read, expected a readable config.json ({path})"
        ) from error
    except ValueError as error:
        raise ConfigError(f"JSON: got text that does not parse ({error}), expected JSON ({path})") from error
    if not isinstance(values, dict):
        raise ConfigError(f"JSON: got {shown(values)}, expected an object ({path})")
    return Fields(file=str(path), where="", values=values)


def shown(value: object) -> str:
    """Return a value as a message quotes it."""
    return json.dumps(value)[:80]
