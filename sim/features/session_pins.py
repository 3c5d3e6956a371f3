"""KV that stays for a session's next round (``session_kv.py`` has the rules; vLLM does not do it)."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.features.setting import AllSettings, InvalidConfig, setting

WITHOUT_SESSION_KV: tuple[tuple[str, object], ...] = (
    ("enable_prefix_caching", True),
    ("kv_cache_groups", ()),
    ("num_cpu_blocks", 0),
    ("batching", "vllm"),
    ("compatibility", "vllm"),
)
"""Settings that pinned KV is simulated with, each at one value only."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class SessionSettings:
    """How long KV stays."""

    __slots__ = ()

    session_kv_ttl_us: int = setting(
        0,
        "Beyond vLLM: µs for which the KV of a session's round stays pinned until the next round "
        "comes (docs/how-to/size-for-agents.md); 0: not at all, as vLLM. A running request that needs blocks removes "
        "pins, and so does the head of the queue when no request runs.",
        most=10**12,
    )


def check_session_kv(config: AllSettings) -> None:
    """Raise InvalidConfig on settings that pinned KV is not simulated with."""
    if config.session_kv_ttl_us == 0:
        return
    for name, needed in WITHOUT_SESSION_KV:
        value = getattr(config, name)
        if value != needed:
            shown, expected = (
                f"{len(each)} groups" if isinstance(each, tuple) else str(each).lower()
                for each in (value, needed)
            )
            raise InvalidConfig(
                f"session_kv_ttl_us: cannot be combined with {name} {shown}, expected {expected}"
            )
