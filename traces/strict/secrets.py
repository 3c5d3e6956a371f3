"""Secrets, and texts without them: keys, header values, logins of URLs and proxies.

In the place of a secret itself (a command line, a URL) it is always left out. Other texts (a server's messages) are
searched for it, in all forms in which it may come back; secrets shorter than four characters are not searched for: they
would be found everywhere.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from lazy_dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

STARS = "***"
KEY_VARIABLES = ("OPENAI_API_KEY", "VLLM_API_KEY")
_OTHER_VARIABLES = ("VTWIN_API_KEY",)  # the key of `vtwin serve`
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
_SHORTEST = 4
_SHORTEST_PART = 8
"""The least length of a part of a header's value that is hidden by itself; words like Bearer are shorter."""

_SCHEMES = ("bearer", "basic", "token", "digest", "apikey", "key")
_LOGIN = re.compile(r"(?<=://)[^/@\s'\"]+@")
_QUERY_KEY = re.compile(
    r"([?&][\w.~-]*(?:key|token|secret|signature|sig|password|passwd|auth|code)=)([^&#\s'\"]+)", re.IGNORECASE
)
"""A parameter of a URL whose name marks it as a secret."""
_WORD = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"-]\S*)"
_KEY_OPTION = re.compile(rf"(--api[-_]key(?:=|\s+))({_WORD}(?:\s+{_WORD})*|\S+)")
"""vLLM takes several keys behind one flag."""
_ASSIGNED_KEY = re.compile(
    r"(\b[A-Za-z_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)[A-Z_]*(?:=|:[ \t]+))('[^']*'|\"[^\"]*\"|[^\s'\"]+)"
)
"""A variable whose name says that it is a key: ``HF_TOKEN=…``, or ``HF_TOKEN: …`` of a manifest."""
_PLAIN_FLAG = re.compile(r"--[A-Za-z][\w.-]{0,60}|-[A-Za-z]{1,4}|-O[0-3]", re.ASCII)
_LONGEST_KEY_FILE = 1 << 16

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Secrets:
    """Texts to hide, the longest first."""

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str]) -> Secrets:
        """Return the secrets ``values`` and the forms in which they come back."""
        forms = {form for value in values for form in _forms(value)}
        return cls(tuple(sorted(forms, key=lambda form: (-len(form), form))))

    def redact(self, text: str) -> str:
        """Return ``text`` with every secret, and every login and key of a URL, replaced by stars."""
        for secret in self.values:
            if secret in text:
                text = text.replace(secret, STARS)
        return redact_url(text)

    def redact_all(self, thing: Thing) -> Thing:
        """Return ``thing`` with every text in it redacted: dataclasses, mappings and tuples of texts."""
        return self._redacted(thing)  # type: ignore[return-value]  # of the same kind as it was

    def _redacted(self, thing: object) -> object:
        if isinstance(thing, str):
            return self.redact(thing)
        if isinstance(thing, tuple):
            return tuple(self._redacted(each) for each in thing)
        if isinstance(thing, Mapping):
            return {self._redacted(key): self._redacted(value) for key, value in thing.items()}
        if is_dataclass(thing) and not isinstance(thing, type):
            return replace(
                thing, **{field.name: self._redacted(getattr(thing, field.name)) for field in fields(thing)}
            )
        return thing


def _forms(value: str) -> Iterator[str]:
    for form in (value, quote(value, safe=""), unquote(value), repr(value)[1:-1]):
        if len(form) >= _SHORTEST:
            yield form


def header_secrets(value: str) -> Iterator[str]:
    """Yield a header's value and the parts of it that are secrets by themselves."""
    yield value
    scheme, _, rest = value.partition(" ")
    if scheme.lower() in _SCHEMES and rest:
        yield rest.strip()
        if scheme.lower() == "basic":
            yield from _decoded(rest.strip())
    yield from (part for part in re.split(r"[\s;,=]+", value) if len(part) >= _SHORTEST_PART)


def _decoded(text: str) -> Iterator[str]:
    try:
        login = base64.b64decode(text, validate=True).decode()
    except ValueError:
        return
    yield login
    yield from login.split(":", 1)


def redact_url(text: str) -> str:
    """Return a URL, or a text with some, with stars in place of logins and of parameters that are keys."""
    if "@" in text:
        text = _LOGIN.sub(f"{STARS}@", text)
    return _QUERY_KEY.sub(rf"\g<1>{STARS}", text) if "=" in text else text


def url_secrets(url: str) -> Iterator[str]:
    """Yield the login of a URL, also as a client sends it, and the parameters that are keys."""
    yield from (found[2] for found in _QUERY_KEY.finditer(url))
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        user, password = parts.username, parts.password
    except ValueError:
        return
    given = [text for text in (user, password) if text]
    yield from given
    if given:
        login = f"{unquote(user or '')}:{unquote(password or '')}"
        yield login
        yield base64.b64encode(login.encode()).decode()


def environment_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys and the proxies' logins in the environment."""
    for name, value in environ.items():
        if name in (*KEY_VARIABLES, *_OTHER_VARIABLES):
            yield value
        elif name.lower() in _PROXY_VARIABLES:
            yield from url_secrets(value)


def command_secrets(arguments: Iterable[str], environ: Mapping[str, str]) -> Secrets:
    """Return the secrets of a command line and of the files and variables that it names."""
    return Secrets.of([*_given_secrets(arguments, environ), *environment_secrets(environ)])


def _given_secrets(arguments: Iterable[str], environ: Mapping[str, str]) -> Iterator[str]:
    for option, value in _options(arguments):
        if option == "--api-key":
            yield value
        elif option == "--api-key-env":
            yield environ.get(value, "")
        elif option == "--api-key-file":
            yield from key_in_file(Path(value)) or ()
        elif option in ("--header", "-H"):
            yield from header_secrets(value.partition(":")[2].strip() or value)
        else:
            for found in _KEY_OPTION.finditer(value):
                yield from (word.strip("'\"") for word in found[2].split())
            yield from (found[2].strip("'\"") for found in _ASSIGNED_KEY.finditer(value))
            yield from (found[2] for found in _QUERY_KEY.finditer(value))
            for login in _LOGIN.finditer(value):
                yield from url_secrets(f"http://{login[0]}h")


def _options(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, value) of a command line; the option of a value that has none is empty."""
    before = ""
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if equals and option.startswith("-"):
            yield option, value
        else:
            yield before, argument
        before = argument if argument.startswith("-") and not equals else ""


def key_in_file(path: Path) -> tuple[str] | None:
    """Return the single line of a file, or None if it has not exactly one or cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST_KEY_FILE).decode("utf-8", "replace").strip()
    except OSError:
        return None
    return (text,) if text and text.isprintable() else None


def key_of(arguments: Iterable[str]) -> str | None:
    """Return the key in a server's command line, None if there is none."""
    return next((value for option, value in _options(arguments) if option == "--api-key"), None)


def redact_command(arguments: Iterable[str], environ: Mapping[str, str] | None = None) -> str:
    """Return a command line, quoted for a shell, with stars in place of keys, header values and logins."""
    words = list(arguments)
    secrets = command_secrets(words, environ or {})
    shown: list[str] = []
    before = ""
    for word in words:
        option, equals, value = word.partition("=")
        if equals and option.startswith("-"):
            shown.append(f"{option}={_hidden(option, value)}")
        else:
            shown.append(_hidden(before, word))
        before = word if word.startswith("-") and not equals else ""
    return secrets.redact(shlex.join(shown))


def _hidden(option: str, value: str) -> str:
    if option == "--api-key":
        return STARS
    if option in ("--header", "-H"):
        name, colon, _ = value.partition(":")
        return f"{name}: {STARS}" if colon else STARS
    return redact_text(value)


def redact_text(text: str) -> str:
    """Return a command line or a manifest, as one text, with stars in place of keys, tokens and logins of URLs."""
    without = _KEY_OPTION.sub(rf"\g<1>{STARS}", text) if "api" in text else text
    return redact_url(_ASSIGNED_KEY.sub(rf"\g<1>{STARS}", without))


def quoted_flag(name: str, value: str | None, *, is_used: bool) -> str:
    """Return a flag of a server as a note quotes it: its value only where the twin uses it, for it may be a key.

    ``value``: None of a flag without one. A short flag with a value behind it in the same word is cut as well.
    """
    shown = name if _PLAIN_FLAG.fullmatch(name) else f"{name[:2]}…"
    if value is None:
        return shown
    return f"{shown} {redact_url(value)}" if is_used else f"{shown} …"
