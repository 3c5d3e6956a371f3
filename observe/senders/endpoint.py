"""Where requests go and with which headers; and the secrets that must not appear in any output."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from observe.senders.request_kinds import KINDS, content_type
from traces import ConfigError, quoted
from traces.strict.arguments import ANY_TEXT, OfClass, check_argument, takes
from traces.strict.secrets import (
    KEY_VARIABLES,
    STARS,
    Secrets,
    environment_secrets,
    header_secrets,
    key_in_file,
    redact_url,
    url_secrets,
)

HEADERS: Final = OfClass(("list", "tuple"), "a list of texts, each 'Name: value'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible server. ``base``: URL without a trailing slash and without ``/v1``.

    ``headers`` are sent with every request. ``verify_tls``: false takes any certificate.
    """

    base: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify_tls: bool = True
    secrets: Secrets = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Collect the secrets that no output may contain, the proxies' logins included."""
        given = [self.api_key or "", *url_secrets(self.base), *environment_secrets(os.environ)]
        given += [secret for value in self.headers.values() for secret in header_secrets(value)]
        object.__setattr__(self, "secrets", Secrets.of(given))

    def url(self, path: str) -> str:
        """Return the full URL of ``path``, which opens with a slash."""
        return self.base + path

    def all_headers(self, path: str = "") -> dict[str, str]:
        """Return the headers of every request to ``path``, the key included; the user's own win."""
        headers = {"Accept-Encoding": "identity", "Content-Type": content_type(path)}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return {**headers, **self.headers}

    @property
    def is_loopback(self) -> bool:
        """Whether the server is this machine, which is reached without a proxy."""
        host = urlsplit(self.base).hostname or ""
        return host == "localhost" or host.startswith("127.") or host == "::1"

    @property
    def takes_any_certificate(self) -> bool:
        """Whether the connection is encrypted without a check of the server's certificate."""
        return not self.verify_tls and self.base.startswith("https:")

    def redact(self, text: str) -> str:
        """Return ``text`` with every secret of this endpoint replaced by stars."""
        return self.secrets.redact(text)


@takes(url=ANY_TEXT, api_key=ANY_TEXT, headers=HEADERS)
def parse_endpoint(
    url: str, *, api_key: str | None = None, headers: Sequence[str] = (), verify_tls: bool = True
) -> Endpoint:
    """Return the endpoint at ``url``, with the key given or else the first that the environment has.

    ``headers`` are "Name: value". Raises ConfigError for a wrong URL, key or header, and for two logins.
    """
    for each in headers:
        check_argument("headers", each, ANY_TEXT)
    base = _base_url(url)
    key = api_key or next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError("--api-key: got a key with other characters than ASCII's printable ones")
    given = dict(_parse_header(text) for text in headers)
    if urlsplit(base).username is not None and (key or "authorization" in map(str.lower, given)):
        raise ConfigError(
            f"--url: got a login in the URL and a key ({_origin(api_key, given)}), expected one of the two"
        )
    return Endpoint(base=base, api_key=key, headers=given, verify_tls=verify_tls)


def _origin(api_key: str | None, headers: Mapping[str, str]) -> str:
    """Return where the key comes from."""
    if api_key:
        return "--api-key"
    if "authorization" in map(str.lower, headers):
        return "--header Authorization"
    return next(name for name in KEY_VARIABLES if os.environ.get(name))


def chosen_key(key: str | None, *, variable: str | None, file: Path | None) -> str | None:
    """Return the key that one of three options names, None where none is given. Raises ConfigError."""
    if sum(given is not None for given in (key, variable, file)) > 1:
        raise ConfigError(
            "--api-key: got several of --api-key, --api-key-env and --api-key-file, expected one"
        )
    if variable is not None:
        if not os.environ.get(variable):
            raise ConfigError(f"--api-key-env: got {variable!r}, expected the name of a variable that is set")
        return os.environ[variable]
    if file is not None:
        found = key_in_file(file)
        if found is None:
            raise ConfigError(f"--api-key-file: got {file}, expected a file with the key on one line")
        return found[0]
    return key


def _base_url(url: str) -> str:
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError:
        raise ConfigError(f"--url: got {_shown(url)}, expected http://HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"--url: got {_shown(url)}, expected http://HOST:PORT or https://HOST")
    if parts.query or parts.fragment:
        raise ConfigError(f"--url: got {_shown(url)}, expected no query and no fragment")
    path = parts.path.rstrip("/")
    for tail in (*(kind.path for kind in KINDS.values()), "/v1"):
        path = path.removesuffix(tail)
    return f"{parts.scheme}://{parts.netloc}{path}"


def _shown(url: str) -> str:
    """Return a URL without secrets for a message, also a malformed one."""
    scheme, there, rest = url.rpartition("://")
    return repr(redact_url(f"{scheme}{there}{STARS}@{rest.rpartition('@')[2]}" if "@" in rest else url))


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise ConfigError("--header: got a text without a colon, expected 'Name: value'")
    if not name.strip() or not name.strip().replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ConfigError(f"--header: got {quoted(name.strip())}, expected 'Name: value'")
    if any(ord(char) < 32 and char != "\t" for char in value.strip()):
        raise ConfigError(
            f"--header: got a control character in {name.strip()}, expected a value on one line"
        )
    return name.strip(), value.strip()
