"""Names to addresses, within a time: a resolver that never answers delays neither a request nor the program's end.

The system's look-up cannot be cancelled. An event loop runs it in a pool of threads, which a program waits for when it
ends; here it is a thread that the run does not wait for.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from contextlib import suppress

from aiohttp.abc import AbstractResolver, ResolveResult

from observe.senders.exchange import Clock, monotonic_ns

LONGEST_S = 10.0
"""Two tries of 5 s: what glibc gives one name server by default (resolv.conf(5))."""

Address = tuple[int, tuple[str, int] | tuple[str, int, int, int]]
"""Family and address, as ``socket.connect`` takes it."""


class ResolverSilentError(socket.gaierror):
    """The resolver has not answered in time."""


class Resolver(AbstractResolver):
    """Looks up each name once; the answer is kept for good, a failure until the next request.

    ``last_found_ns``: when the latest name was found, None before; an address is no name.
    """

    def __init__(self, *, longest_s: float = LONGEST_S, clock: Clock = monotonic_ns) -> None:
        self.last_found_ns: int | None = None
        self._clock = clock
        self._longest_s = longest_s
        self._asked: dict[tuple[str, int, int], asyncio.Future[list[Address]]] = {}

    async def addresses(self, host: str, port: int, family: int = socket.AF_UNSPEC) -> list[Address]:
        """Return the addresses of a name, in the system's order. Raises socket.gaierror, in time."""
        key = (host, port, family)
        if key not in self._asked:
            self._asked[key] = _look_up(host, port, family)
            self._asked[key].add_done_callback(lambda asked: self._note(key, asked))
        try:
            return await asyncio.wait_for(asyncio.shield(self._asked[key]), self._longest_s)
        except TimeoutError:
            said = f"no answer of the resolver within {self._longest_s:g} s"
            raise ResolverSilentError(socket.EAI_AGAIN, said) from None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses as aiohttp has them. Raises socket.gaierror, in time."""
        found = await self.addresses(host, port, family)
        return [
            ResolveResult(
                hostname=host,
                host=address[0] if len(address) < 4 or not address[3] else f"{address[0]}%{address[3]}",
                port=address[1],
                family=found_family,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for found_family, address in found
        ]

    async def close(self) -> None:
        """Forget all answers."""
        self._asked.clear()

    def found_after(self, since_ns: int) -> int | None:
        """Return how long after ``since_ns`` the latest name was found, ns; None if no look-up was under way then."""
        found = self.last_found_ns
        return None if found is None or found <= since_ns else found - since_ns

    def _note(self, key: tuple[str, int, int], asked: asyncio.Future[list[Address]]) -> None:
        """Forget a failure; note when a name was found."""
        if asked.cancelled() or asked.exception() is not None:
            self._asked.pop(key, None)
        elif not _is_address(key[0]):
            self.last_found_ns = self._clock()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def unresolved(host: str, fault: BaseException) -> str:
    """Return one line for a name without an address."""
    return f"cannot resolve {host}" + (
        f": {fault.strerror}" if isinstance(fault, ResolverSilentError) else ""
    )


def _look_up(host: str, port: int, family: int) -> asyncio.Future[list[Address]]:
    """Return a future of the answer, from a separate thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Address]] = loop.create_future()

    def tell(found: list[Address] | OSError) -> None:
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            found: list[Address] | OSError = [(each[0], each[4]) for each in infos]  # type: ignore[misc]  # built with IPv6
        except UnicodeError as fault:  # a part of the name with more than 63 letters, or none
            found = socket.gaierror(socket.EAI_NONAME, str(fault))
        except OSError as fault:
            found = fault
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=ask, name=f"resolve {host[:60]}", daemon=True).start()
    return answer
