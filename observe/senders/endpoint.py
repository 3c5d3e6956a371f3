"""Where requests go and with which headers; and the secrets that must not appear in any output."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from traces.errors import ConfigError

Api = Literal["completions", "chat"]

PATHS: dict[Api, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
KEY_VARIABLES = ("OPENAI_API_KEY", "VLLM_API_KEY")
_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "cookie", "proxy-authorization")
_STARS = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible server. ``base``: URL without a trailing slash and without ``/v1``.

    ``headers`` are sent with every request. ``verify_tls``: false takes any certificate.
    """

    base: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify_tls: bool = True

    def url(self, path: str) -> str:
        """Return the full URL of ``path``, which opens with a slash."""
        return self.base + path

    def all_headers(self) -> dict[str, str]:
        """Return the headers of every request, the key included; the user's own win."""
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return {**headers, **self.headers}

    @property
    def is_loopback(self) -> bool:
        """Whether the server is this machine, which no proxy leads to."""
        host = urlsplit(self.base).hostname or ""
        return host == "localhost" or host.startswith("127.") or host == "::1"

    def redact(self, text: str) -> str:
        """Return ``text`` with every secret of this endpoint replaced by stars."""
        for secret in self._secrets():
            text = text.replace(secret, _STARS)
        return text

    def _secrets(self) -> list[str]:
        hidden = [value for name, value in self.headers.items() if name.lower() in _SECRET_HEADERS]
        password = urlsplit(self.base).password
        return [secret for secret in (self.api_key, password, *hidden) if secret]


def parse_endpoint(
    url: str, *, api_key: str | None = None, headers: Iterable[str] = (), verify_tls: bool = True
) -> Endpoint:
    """Return the endpoint at ``url``, with the key given or else the first that the environment has.

    ``headers`` are "Name: value". Raises ConfigError for a URL or a header that is none.
    """
    return Endpoint(
        base=_base_url(url),
        api_key=api_key or next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None),
        headers=dict(_parse_header(text) for text in headers),
        verify_tls=verify_tls,
    )


def _base_url(url: str) -> str:
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError:
        raise ConfigError(f"--url: got {url!r}, expected http://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"--url: got {url!r}, expected http://HOST:PORT or https://HOST")
    if parts.query or parts.fragment:
        raise ConfigError(f"--url: got {url!r}, expected no query and no fragment")
    path = parts.path.rstrip("/")
    for tail in (*PATHS.values(), "/v1"):
        path = path.removesuffix(tail)
    return f"{parts.scheme}://{parts.netloc}{path}"


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not name.strip().replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"--header: got {name.strip()[:40]!r}, expected 'Name: value'")
    return name.strip(), value.strip()


def redact_command(arguments: Iterable[str]) -> str:
    """Return a command line, quoted for a shell, with keys and secret headers replaced by stars."""
    import shlex

    shown: list[str] = []
    hide_next = ""
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if hide_next:
            shown.append(_hidden(hide_next, argument))
            hide_next = ""
        elif equals and option in ("--api-key", "--header", "-H"):
            shown.append(f"{option}={_hidden(option, value)}")
        else:
            hide_next = argument if argument in ("--api-key", "--header", "-H") else ""
            shown.append(argument)
    return shlex.join(shown)


def _hidden(option: str, value: str) -> str:
    """Return the value of a secret option as it may be shown: a harmless header stays."""
    name = value.partition(":")[0]
    if option == "--api-key":
        return _STARS
    return f"{name}: {_STARS}" if name.strip().lower() in _SECRET_HEADERS else value
