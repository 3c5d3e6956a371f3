"""A text of commands as a shell reads it: each command's words, without redirections, with variables put in.

Nothing is run. ``$(…)`` and a variable whose value the text does not say stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from typing import Final

from traces import ConfigError

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_ENDS: Final = ";&|\n"
_REDIRECTION: Final = re.compile(r"(?:\d*|&)(?:>>|>&|<<<|<>|[<>])\s*(?:&\d+|\d+(?=\s|$))?")
_FLAG_AHEAD: Final = re.compile(r"\s*-")
_PLAIN: Final = re.compile(r"[^\s\\'\"$#;&|<>]+")
_QUOTED: Final = {"'": re.compile(r"[^']+"), '"': re.compile(r"[^\"\\$]+")}
MOST_CHARACTERS: Final = 1 << 22
"""The most characters of a text's words with their variables put in, which could otherwise grow without end."""
MOST_WORDS: Final = 20_000
GROWS: Final = "command: got variables that grow without end, expected plain values"


@dataclass(slots=True)
class _Reader:
    """Where the reader is in the text, the word under way, and what is done. ``word``: None between words."""

    text: str
    variables: dict[str, str]
    at: int = 0
    word: list[str] | None = None
    words: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    drops_next: bool = False
    characters: int = 0
    number: int = 0

    def add(self, piece: str) -> None:
        """Put a piece to the word under way, or begin one. Raises ConfigError where words grow without end."""
        self.word = [] if self.word is None else self.word
        self.word.append(piece)
        self.characters += len(piece)
        if self.characters > MOST_CHARACTERS:
            raise ConfigError(GROWS)

    def end_word(self) -> None:
        """Keep the word under way; the file of a redirection is not one of the command's. Raises ConfigError."""
        if self.word is not None:
            if not self.drops_next:
                self.words.append("".join(self.word))
            self.drops_next = False
            self.number += 1
            if self.number > MOST_WORDS:
                raise ConfigError(
                    f"command: got more than {MOST_WORDS:,} words, expected a server's command line"
                )
        self.word = None

    def end_command(self) -> None:
        """Keep the command, and what it assigns where it is nothing but assignments or an export."""
        self.end_word()
        self.drops_next = False
        plain = self.words[1:] if self.words[:1] in (["export"], ["declare"], ["readonly"]) else self.words
        assigned = [_ASSIGNED.fullmatch(word) for word in plain]
        if assigned and all(assigned):
            self.variables.update({each[1]: each[2] for each in assigned if each is not None})
        if self.words:
            self.commands.append(self.words)
        self.words = []


def shell_commands(text: str, variables: Mapping[str, str] | None = None) -> list[list[str]]:
    """Return the words of each command in a text. ``variables``: values that are known before it.

    Variables that the text itself sets (``MODEL=…``, ``export MODEL=…``) count from there on. A new line ends a
    command, except where the next one begins with a flag or the flag before waits for its value: such lines are pasted
    without their backslash. Raises ConfigError on a quotation without an end.
    """
    reader = _Reader(text.replace("\r\n", "\n"), dict(variables or {}))
    while reader.at < len(reader.text):
        _step(reader)
    reader.end_command()
    return reader.commands


def _step(reader: _Reader) -> None:
    """Read what stands at the reader's place."""
    text, at = reader.text, reader.at
    character = text[at]
    if character == "\\":
        if text[at + 1 : at + 2] != "\n":
            reader.add(text[at + 1 : at + 2])
        else:
            reader.end_word()
        reader.at += 2
    elif character in "'\"":
        _quotation(reader, character)
    elif character == "$":
        _variable(reader)
    elif character == "#" and reader.word is None:
        end = text.find("\n", at)
        reader.at = len(text) if end < 0 else end
    elif (found := _redirection(reader)) is not None:
        reader.word = None
        reader.drops_next = found.group().rstrip()[-1:] in "<>"
        reader.at = found.end()
    elif character in _ENDS:
        _end(reader, character)
    elif character.isspace():
        reader.end_word()
        reader.at += 1
    elif (plain := _PLAIN.match(text, at)) is not None:
        reader.add(plain.group())
        reader.at = plain.end()
    else:
        reader.add(character)
        reader.at += 1


def _redirection(reader: _Reader) -> re.Match[str] | None:
    """Return the redirection at this place; ``2>`` begins with a digit that stands alone."""
    if reader.word is not None and reader.text[reader.at] not in "<>":
        return None
    if reader.word is not None:
        reader.end_word()
    return _REDIRECTION.match(reader.text, reader.at)


def _end(reader: _Reader, character: str) -> None:
    reader.end_word()
    reader.at += 1
    if character == "\n" and reader.words:
        last = reader.words[-1]
        waits = last.startswith("--") and "=" not in last and any("vllm" in word for word in reader.words)
        if waits or last == "serve" or _FLAG_AHEAD.match(reader.text, reader.at):
            return
    reader.end_command()


def _quotation(reader: _Reader, mark: str) -> None:
    """Read a quotation; variables count within double quotes."""
    text = reader.text
    reader.add("")
    reader.at += 1
    while reader.at < len(text) and text[reader.at] != mark:
        character = text[reader.at]
        if (
            mark == '"'
            and character == "\\"
            and text[reader.at + 1 : reader.at + 2] in ('"', "\\", "$", "`", "\n")
        ):
            reader.add(text[reader.at + 1].replace("\n", ""))
            reader.at += 2
        elif mark == '"' and character == "$":
            _variable(reader)
        elif (plain := _QUOTED[mark].match(text, reader.at)) is not None:
            reader.add(plain.group())
            reader.at = plain.end()
        else:
            reader.add(character)
            reader.at += 1
    if reader.at >= len(text):
        raise ConfigError("command: got No closing quotation, expected a shell's words (vllm serve MODEL …)")
    reader.at += 1


def _variable(reader: _Reader) -> None:
    """Put in a variable's value: ``$NAME``, ``${NAME}``, ``${NAME:-usual}``; all else stays as it is."""
    text, at = reader.text, reader.at
    if text[at + 1 : at + 2] in ("{", "("):
        closing = text.find("}" if text[at + 1] == "{" else ")", at)
        end = len(text) if closing < 0 else closing + 1
        reader.add(substituted(text[at:end], reader.variables))
        reader.at = end
        return
    name = _NAME.match(text, at + 1)
    if name is None:
        reader.add("$")
        reader.at += 1
        return
    reader.add(reader.variables.get(name.group(), text[at : name.end()]))
    reader.at = name.end()


_WRITTEN: Final = re.compile(
    r"\$\((?P<kubernetes>[A-Za-z_][\w.-]*)\)|\$\{(?P<braces>[A-Za-z_]\w*)(?::?[-?=](?P<usual>[^{}]*))?\}",
    re.ASCII,
)


def substituted(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with ``$(NAME)`` of Kubernetes and ``${NAME}`` of compose put in, where their values are known.

    Raises ConfigError where it grows without end.
    """
    pieces: list[str] = []
    at = length = 0
    for found in _WRITTEN.finditer(text):
        name = found["kubernetes"] or found["braces"]
        pieces += [text[at : found.start()], variables.get(name, found["usual"] or found.group())]
        at = found.end()
        length += len(pieces[-1])
        if length > MOST_CHARACTERS:
            raise ConfigError(GROWS)
    return "".join([*pieces, text[at:]])
