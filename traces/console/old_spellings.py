"""Old spellings of commands and options: read as the new ones, and told in a line on stderr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, field
from typing import Final

from traces.errors import ConfigError
from traces.strict.tell import tell

OLD_OPTIONS: Final[Mapping[str, str]] = {"--lengths-from": "--like"}
"""Options of every command that were renamed, by their old names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommand:
    """What an old command is now: the words of the new one, and its options with other names there.

    ``where``: it is the old command only with this option.
    """

    words: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None


def in_new_words(arguments: Sequence[str], commands: Mapping[tuple[str, ...], NewCommand]) -> list[str]:
    """Return a command line in today's words, each old one told once. Raises ConfigError on an old and a new one.

    ``commands``: by the words that a line begins with.
    """
    words, renamed = list(arguments), dict(OLD_OPTIONS)
    for old, new in commands.items():
        is_meant = new.where is None or new.where in {each.partition("=")[0] for each in words}
        if tuple(words[: len(old)]) == old and is_meant:
            words[: len(old)] = new.words
            renamed |= new.options
            told = " ".join([*old, *([] if new.where is None else [new.where])])
            tell(f"note: `vtwin {told}` is now `vtwin {' '.join(new.words)}`")
    end = words.index("--") if "--" in words else len(words)
    given = {each.partition("=")[0] for each in words[:end]}
    for old_name in sorted(given & set(renamed)):
        new_name = renamed[old_name]
        if new_name in given:
            raise ConfigError(
                f"{old_name}: got it beside {new_name}, which is its new name, expected one of them"
            )
        tell(f"note: `{old_name}` is now `{new_name}`")
        words[:end] = [
            new_name + each[len(old_name) :] if each.partition("=")[0] == old_name else each
            for each in words[:end]
        ]
    return words
