"""Names and their addresses: asked once, within a time, and a resolver that is silent holds nothing up."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import vtwin
from observe.senders import name_resolution
from observe.senders.name_resolution import Resolver

REAL = socket.getaddrinfo


class Asked:
    """Takes the system's place: counts the questions, and is silent about ``stalls`` until it is let go."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.let_go = threading.Event()

    def __call__(self, host: str, *more: object, **named: object) -> object:
        self.hosts.append(host)
        if host == "stalls.example":
            self.let_go.wait(20)
            raise socket.gaierror(socket.EAI_NONAME, "let go")
        return REAL(host, *more, **named)  # type: ignore[arg-type]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    system = Asked()
    monkeypatch.setattr(name_resolution.socket, "getaddrinfo", system)
    yield system
    system.let_go.set()


def test_a_silent_resolver_ends_observe_in_one_line(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = name_resolution.Resolver.__init__
    monkeypatch.setattr(first, "__kwdefaults__", {**(first.__kwdefaults__ or {}), "longest_s": 0.1})
    begin = time.monotonic()
    load = ["--rate", "5", "--num-requests", "2", "--output", str(tmp_path / "run")]
    assert vtwin.main(["observe", "--url", "http://stalls.example", *load]) == 4
    assert time.monotonic() - begin < 10  # the look-up itself goes on for 20
    said = capsys.readouterr().err
    line = "cannot resolve stalls.example: no answer of the resolver within 0.1 s"
    assert said == f"ServerError: http://stalls.example/v1/models: {line}\n"
    assert asked.hosts == ["stalls.example"]


async def test_a_name_is_looked_up_once_for_all_that_ask(asked: Asked) -> None:
    resolver = Resolver()
    answers = await asyncio.gather(*(resolver.addresses("127.0.0.1", 80) for _ in range(50)))
    assert set(map(str, answers)) == {"[(<AddressFamily.AF_INET: 2>, ('127.0.0.1', 80))]"}
    assert asked.hosts == ["127.0.0.1"]
    (found,) = await resolver.resolve("127.0.0.1", 81)
    assert (found["host"], found["port"], found["family"]) == ("127.0.0.1", 81, socket.AF_INET)


async def test_a_failure_is_asked_again_and_is_the_systems_own(asked: Asked) -> None:
    resolver = Resolver()
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await resolver.addresses("a" * 64 + ".example", 80)
    assert len(asked.hosts) == 2


async def test_an_address_that_comes_late_is_there_for_the_next_question(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver(longest_s=0.05)
    late = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.9", 80))]

    def after_a_while(*_: object) -> object:
        asked.let_go.wait(20)
        return late

    monkeypatch.setattr(name_resolution.socket, "getaddrinfo", after_a_while)
    with pytest.raises(name_resolution.ResolverSilentError):
        await resolver.addresses("late.example", 80)
    asked.let_go.set()
    assert await resolver.addresses("late.example", 80) == [(socket.AF_INET, ("127.0.0.9", 80))]
