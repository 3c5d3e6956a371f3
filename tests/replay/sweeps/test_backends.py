"""A scheduler that is not there: one line at once, whichever library would look for it."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from replay.sweeps import backends
from traces import ConfigError


def closed_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def nothing_to_ask(**_: object) -> None:
    raise AssertionError("the library was asked")


@pytest.mark.parametrize("backend", ["dask", "ray"])
@pytest.mark.parametrize("scheme", ["", "tcp://", "ray://"])
def test_a_scheduler_that_does_not_answer_is_one_line(
    backend: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SimpleNamespace(Client=nothing_to_ask, init=nothing_to_ask)
    monkeypatch.setattr(backends, "_library", lambda *_: library)
    address = f"{scheme}127.0.0.1:{closed_port()}"
    with pytest.raises(ConfigError, match=f"--address: got '{address}', expected a scheduler that answers"):
        list(backends.rows_of([], backend=backend, jobs=1, address=address))  # type: ignore[arg-type] # both are one


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_what_a_library_cannot_begin_with_is_one_line(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("no such place\n" + "x" * 500)

    monkeypatch.setattr(backends, "_library", lambda *_: SimpleNamespace(Client=fail, init=fail))
    with pytest.raises(
        ConfigError, match="--address: got 'auto', expected a scheduler that answers"
    ) as error:
        list(backends.rows_of([], backend=backend, jobs=1, address="auto"))  # type: ignore[arg-type] # both are one
    assert len(str(error.value)) < 200
