"""A router's interface: choose an instance, and note what happens to the request. All of it is compiled.

A decision is ``has_room``, ``choose_instance``, ``note_routed``; later, once each, ``note_first_token`` and
``note_finished``; ``note_snapshot`` whenever ``Fleet`` has been refreshed. ``choose_instance`` changes nothing but
scratch: ``note_routed`` may then name another instance, as recordings of real routers do. Where ``has_room`` is False,
``with_room_for`` makes room, in Python.

A question to the run's policy is a function here with what holds for policies that do not answer it (``asked``).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet, RequestTable
from sim.cluster.routing.router_state import NUMBERS, PolicyFunctions, Router
from sim.cluster.routing.shelves import add_in_flight
from sim.jit.compile import phase

Question = TypeVar("Question", bound=Callable[..., Any])


def functions_of() -> dict[int, PolicyFunctions]:
    """Return the functions of each policy, by its number, out of the module that its class names."""
    return {
        number: import_module(f"{__package__}.{policy.module}").FUNCTIONS[policy]
        for policy, number in NUMBERS.items()
    }


def asked(otherwise: Question) -> Question:
    """Return a compiled function that asks the run's policy, and returns ``otherwise``'s constant where that is silent.

    It is a chain of branches over the policies that answer a question of this name; a table of functions would be one
    of pointers, and nothing could be inlined. Raises TypeError where an answer names a parameter that the question
    has not.
    """
    question, parameters = otherwise.__name__, _parameters_of(otherwise)
    names: dict[str, Any] = {"__name__": __name__}
    lines = [f"def {question}({', '.join(parameters)}):"]
    for number, functions in functions_of().items():
        answer = functions.of(question)
        if answer is None:
            continue
        taken = _parameters_of(answer)
        if not set(taken) <= set(parameters):
            raise TypeError(f"{question}: got a function of {taken}, expected some of {parameters}")
        names[f"answer_{number}"] = answer
        lines += [
            f"    if router.settings[0].policy == {number}:",
            f"        return answer_{number}({', '.join(taken)})",
        ]
    lines.append(f"    return {otherwise(*parameters)}")
    exec(compile("\n".join(lines), f"<{question} of every policy>", "exec"), names)  # noqa: S102 - written above
    return cast("Question", phase(names[question]))


def _parameters_of(function: Any) -> tuple[str, ...]:  # noqa: ANN401 - a function, or what stands for one until it is compiled
    code = getattr(function, "py_func", function).__code__
    return cast("tuple[str, ...]", code.co_varnames[: code.co_argcount])


@asked
def choose(router: Router, fleet: Fleet, requests: RequestTable, request: int, time_us: int) -> int:  # noqa: ARG001 - every policy answers
    """Return the candidate that the policy chooses; there is at least one."""
    return NOWHERE


@asked
def has_room(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> bool:  # noqa: ARG001 - policies that remember answer
    """Return whether the router's memory can take this request."""
    return True


@asked
def note_choice(router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int) -> None:
    """Note in the policy's memory that a request goes to an instance."""


@asked
def note_first_token(router: Router, requests: RequestTable, request: int, instance: int) -> None:
    """Note that a request's prefill is done; called once, at the latest right before ``note_finished``."""


@asked
def note_departure(
    router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int, time_us: int
) -> None:
    """Note in the policy's memory that a request has left its instance."""


@asked
def note_snapshot(router: Router, fleet: Fleet) -> None:
    """Note that every instance's reported state has been refreshed: what was sent before is in it."""


@asked
def forget_instance(router: Router, requests: RequestTable, instance: int) -> None:
    """Note that an instance has nothing cached any more: what was sent there is gone."""


@phase
def choose_instance(router: Router, fleet: Fleet, requests: RequestTable, request: int, time_us: int) -> int:
    """Return the number of the instance that gets a request; NOWHERE without a candidate."""
    if fleet.counts[0].num_candidates == 0:
        return NOWHERE
    return choose(router, fleet, requests, request, time_us)


@phase
def note_routed(router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int) -> None:
    """Note that a request goes to an instance; the last ``choose_instance`` must have been for it."""
    add_in_flight(fleet, instance, 1)
    router.work[instance].num_dispatched += 1
    note_choice(router, fleet, requests, request, instance)


@phase
def note_finished(
    router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int, time_us: int
) -> None:
    """Note that a request has left its instance, for any reason."""
    add_in_flight(fleet, instance, -1)
    note_departure(router, fleet, requests, request, instance, time_us)
