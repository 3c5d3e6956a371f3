"""Which requests the gateway takes at all: policies, their settings, and the compiled decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from lazy_dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sim.cluster.arrays import NOWHERE, Records, records
from sim.cluster.fleet import Fleet, RequestTable, load_of
from sim.cluster.gateway.fleet_saturation import UTILIZATION, saturation_of
from sim.cluster.setting_checks import built_in, check_flag, check_fractions, check_integer, check_number
from sim.cluster.slo_classes import STANDARD
from sim.config import Compatibility, InvalidConfig
from sim.jit.compile import engine_entry, part, phase
from sim.requests import Int64s

NANO = 1_000_000_000
"""The bucket's level is counted in billionths of a token, so that a µs refills a whole number of them."""

LARGEST_BUCKET = 9_000_000_000
"""Tokens, so that the level fits in 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysAdmit:
    """Every request is taken."""

    name: ClassVar[str] = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectAll:
    """No request is taken: for tests."""

    name: ClassVar[str] = "reject-all"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """A request takes its prompt's tokens from a bucket that time refills; one that finds too few is rejected.

    ``capacity``: tokens, full at time 0. ``refill_per_s``: tokens per second, in whole thousandths.
    """

    name: ClassVar[str] = "token-bucket"
    capacity: int
    refill_per_s: float

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("capacity", self.capacity, least=0)
        check_number("refill_per_s", self.refill_per_s, least=0, most=LARGEST_BUCKET)
        if self.capacity > LARGEST_BUCKET:
            raise InvalidConfig(f"capacity: got {self.capacity}, expected at most {LARGEST_BUCKET}")
        if not self.nano_per_us.denominator == 1:
            raise InvalidConfig(f"refill_per_s: got {self.refill_per_s!r}, expected a multiple of 0.001")

    @property
    def nano_per_us(self) -> Fraction:
        """Billionths of a token per µs."""
        return Fraction(str(self.refill_per_s)) * NANO / 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TierShed:
    """While an instance's load is above ``max_load``, only priorities of ``min_priority`` and more are taken."""

    name: ClassVar[str] = "tier-shed"
    max_load: int = 0
    min_priority: int = STANDARD

    def __post_init__(self) -> None:
        """Check the settings."""
        check_integer("max_load", self.max_load, least=0)
        check_integer("min_priority", self.min_priority, least=-100)


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationShed:
    """While the fleet is saturated (``sim.cluster.gateway.fleet_saturation``), sheddable requests are rejected."""

    name: ClassVar[str] = "utilization"
    queue_threshold: float = 5
    kv_threshold: float = 0.8

    def __post_init__(self) -> None:
        """Check the settings."""
        check_positive("queue_threshold", self.queue_threshold)
        check_positive("kv_threshold", self.kv_threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantBudget:
    """A tenant may have a fraction of the fleet's seats (instances * max_num_seqs) in flight.

    Beyond it its sheddable requests are rejected, and with ``rejects_all`` the others too. A tenant that is not in
    ``budgets`` has no limit.
    """

    name: ClassVar[str] = "tenant-budget"
    budgets: Mapping[str, float]
    rejects_all: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        check_fractions("budgets", self.budgets)
        check_flag("rejects_all", self.rejects_all)


def check_positive(name: str, value: object) -> None:
    """Raise InvalidConfig on a value that is not a number above 0."""
    check_number(name, value, least=0)
    if value == 0:
        raise InvalidConfig(f"{name}: got 0, expected a number > 0")


AdmissionPolicy = AlwaysAdmit | RejectAll | TokenBucket | TierShed | UtilizationShed | TenantBudget

ADMISSION_POLICIES: dict[str, Callable[..., AdmissionPolicy]] = {
    "always": AlwaysAdmit,
    "reject-all": RejectAll,
    "token-bucket": TokenBucket,
    "tier-shed": TierShed,
    "utilization": UtilizationShed,
    "tenant-budget": TenantBudget,
}
"""The policies by their names in TWIN.yaml."""


def admission_policy(settings: Mapping[str, Any]) -> AdmissionPolicy:
    """Return the policy that ``admission:`` of TWIN.yaml asks for. Raises InvalidConfig."""
    return built_in(ADMISSION_POLICIES, settings, section="admission")


# -- compiled -----------------------------------------------------------------------------------------------

ALWAYS, REJECT_ALL, TOKEN_BUCKET, TIER_SHED, UTILIZATION_SHED, TENANT_BUDGET = range(6)
POLICIES = (AlwaysAdmit, RejectAll, TokenBucket, TierShed, UtilizationShed, TenantBudget)

NO_LIMIT = 1 << 62

ADMISSION = np.dtype(
    [
        ("policy", np.int64),
        ("capacity", np.int64),  # 10⁻⁹ tokens
        ("refill_per_us", np.int64),  # 10⁻⁹ tokens
        ("level", np.int64),  # 10⁻⁹ tokens, at filled_us
        ("filled_us", np.int64),
        ("counts_twice", np.int64),
        ("max_load", np.int64),
        ("min_priority", np.int64),
        ("queue_threshold", np.float64),
        ("kv_threshold", np.float64),
        ("rejects_all", np.int64),
    ],
    align=True,
)


class Admission(NamedTuple):
    """An admission policy's whole state; compiled functions take it as one."""

    settings: Records  # ADMISSION[1]
    budgets: Int64s  # per tenant, requests
    num_in_flight: Int64s  # per tenant


def new_admission(
    policy: AdmissionPolicy,
    *,
    num_seats: int,
    tenants: Sequence[str] = (),
    compatibility: Compatibility = "vllm",
) -> Admission:
    """Return a policy that has not decided anything yet; tenant t of the requests is ``tenants[t]``."""
    settings = records(1, ADMISSION)
    settings["policy"] = POLICIES.index(type(policy))
    settings["counts_twice"] = compatibility == "blis"
    budgets = np.full(len(tenants), NO_LIMIT, np.int64)
    if isinstance(policy, TokenBucket):
        settings["capacity"] = settings["level"] = policy.capacity * NANO
        settings["refill_per_us"] = int(policy.nano_per_us)
    elif isinstance(policy, TierShed):
        settings["max_load"], settings["min_priority"] = policy.max_load, policy.min_priority
    elif isinstance(policy, UtilizationShed):
        settings["queue_threshold"] = policy.queue_threshold
        settings["kv_threshold"] = policy.kv_threshold
    elif isinstance(policy, TenantBudget):
        settings["rejects_all"] = policy.rejects_all
        for number, tenant in enumerate(tenants):
            if tenant in policy.budgets:
                budgets[number] = int(Fraction(str(policy.budgets[tenant])) * num_seats)
    return Admission(settings=settings, budgets=budgets, num_in_flight=np.zeros(len(tenants), np.int64))


@phase
def is_admitted(
    admission: Admission, fleet: Fleet, requests: RequestTable, request: int, time_us: int
) -> bool:
    """Return whether a request is taken; a token bucket pays for it at once. Times must not go back."""
    settings = admission.settings[0]
    if settings.policy == ALWAYS:
        return True
    if settings.policy == TOKEN_BUCKET:
        return takes_tokens(admission, requests.prompt_tokens[request], time_us)
    if settings.policy == TIER_SHED:
        return (
            requests.slo_priority[request] >= settings.min_priority
            or most_load(admission, fleet) <= settings.max_load
        )
    if settings.policy == UTILIZATION_SHED:
        full = saturation_of(fleet, UTILIZATION, settings.queue_threshold, settings.kv_threshold, 1.0) >= 1.0
        return requests.slo_priority[request] >= 0 or not full
    if settings.policy == TENANT_BUDGET:
        return is_within_budget(admission, requests, request)
    return False


@part
def takes_tokens(admission: Admission, num_tokens: int, time_us: int) -> bool:
    """Return whether the bucket has enough tokens, and take them. The level is exact: no rounding, no overflow."""
    settings = admission.settings[0]
    missing, elapsed_us = settings.capacity - settings.level, time_us - settings.filled_us
    if settings.refill_per_us > 0:
        if elapsed_us > missing // settings.refill_per_us:
            settings.level = settings.capacity
        else:
            settings.level += elapsed_us * settings.refill_per_us
    settings.filled_us = time_us
    if num_tokens > settings.level // NANO:
        return False
    settings.level -= num_tokens * NANO
    return True


@part
def most_load(admission: Admission, fleet: Fleet) -> int:
    """Return the largest load of any candidate."""
    most = 0
    for place in range(fleet.counts[0].num_candidates):
        most = max(
            most, load_of(fleet.instances[fleet.candidates[place]], admission.settings[0].counts_twice)
        )
    return most


@part
def is_within_budget(admission: Admission, requests: RequestTable, request: int) -> bool:
    """Return whether a request's tenant may have one more in flight, or the request may not be shed."""
    tenant = requests.tenant[request]
    if tenant == NOWHERE or admission.num_in_flight[tenant] < admission.budgets[tenant]:
        return True
    return requests.slo_priority[request] >= 0 and not admission.settings[0].rejects_all


@part
def note_admitted(admission: Admission, requests: RequestTable, request: int) -> None:
    """Count a request in; once, when it was admitted."""
    if admission.settings[0].policy == TENANT_BUDGET and requests.tenant[request] != NOWHERE:
        admission.num_in_flight[requests.tenant[request]] += 1


@part
def note_gone(admission: Admission, requests: RequestTable, request: int) -> None:
    """Count an admitted request out, however it leaves."""
    if admission.settings[0].policy == TENANT_BUDGET and requests.tenant[request] != NOWHERE:
        admission.num_in_flight[requests.tenant[request]] -= 1


@engine_entry
def leave(admission: Admission, requests: RequestTable, request: int) -> None:
    """Call ``note_gone``."""
    note_gone(admission, requests, request)
