"""Every key of TWIN.yaml at the ends of numbers: read at once, or refused in a line that names it; then simulated."""

from __future__ import annotations

import copy
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from replay.twin.config_keys import all_keys
from replay.twin.keys.key import Key
from tests.fuzz.target import Target
from traces.errors import VtwinError

VALUES = ("0", "-1", "1e-13", "2147483648", "9223372036854775808", "1e308", ".nan", ".inf", "x")
KEYS = all_keys()
NUMERIC = ("integer", "fraction", "number", "decimal")
NEVER = (".nan", ".inf", "1e308", "x")
"""What no quantity can be."""
LISTS = ("pools", "bands", "schedule", "node_pools")
BLACKBOX: dict[str, Any] = {
    "engine": {"max_num_seqs": 8, "num_gpu_blocks": 500},
    "latency": {
        "model": "blackbox",
        "coefficients": {"alpha0": 1, "alpha1": 1, "alpha2": 0, "beta0": 5000, "beta1": 10, "beta2": 20},
    },
}
PHYSICS: dict[str, Any] = {
    "engine": {"max_num_seqs": 8},
    "latency": {"model": "physics", "model_config": "Qwen/Qwen2.5-7B-Instruct"},
    "hardware": {"gpu": "H100"},
}
_ONLY = re.compile(r"`([\w-]+)`(?: and `[\w-]+`)? only")
"""How a key's meaning says of which policy it is."""


def document(key: Key, value: str) -> str:
    """Return a TWIN.yaml that is whole but for this key's value."""
    needs_gpu = key.path.startswith("hardware") or (
        key.path.startswith("latency.") and "coefficients" not in key.path
    )
    twin = copy.deepcopy(PHYSICS if needs_gpu else BLACKBOX)
    if key.path.startswith("cluster."):
        twin["cluster"] = (
            {"pools": [{"name": "a", "instances": 2}]} if ".pools." in key.path else {"instances": 2}
        )
    at, (*above, last) = twin, key.path.split(".")
    for name in above:
        inner = at.setdefault(name, [{}] if name in LISTS else {})
        at = inner[0] if isinstance(inner, list) else inner
        if not isinstance(at, dict):  # the key above is a name, as of a GPU
            return f"{name}: {value}\n"
    if (only := _ONLY.match(key.meaning)) is not None:
        at.setdefault("policy", only[1])
    at[last] = "PLACE"
    return yaml.safe_dump(twin).replace("PLACE", value)


def loaded(data: bytes) -> Any:  # noqa: ANN401  a TwinConfig, or None
    """Read the document that two bytes stand for; None where it is refused. Raises AssertionError for a fault."""
    key = KEYS[int.from_bytes(data[:2]) % len(KEYS)]
    value = VALUES[data[-1] % len(VALUES)]
    return read(key, value)


def read(key: Key, value: str) -> Any:  # noqa: ANN401  a TwinConfig, or None
    """Read a TWIN.yaml with this value; None where it is refused, by one line that names the key."""
    from replay.twin.config_read import load_config

    text = document(key, value)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "twin.yaml"
        path.write_text(text)
        try:
            config = load_config(path)
        except VtwinError as refusal:
            assert str(refusal).isprintable()
            return None
    is_inherited = key.path.startswith("latency.defaults")  # not looked at where a model is named
    assert is_inherited or key.kind not in NUMERIC or value not in NEVER, f"{key.path}: {value} is taken"
    return config


def _run(data: bytes) -> None:
    """A few requests through what was read: times that are, or a refusal."""
    from replay import simulate_trace
    from sim.config import InvalidConfig
    from traces.workload import trace_from_options
    from traces.workload.options import WorkloadOptions

    config = loaded(data)
    if config is None or not config.is_plain_server:
        return
    drawn = trace_from_options(WorkloadOptions(rate=5, num_requests=3, prompt_tokens=40, output_tokens=3))
    try:
        simulated, _ = simulate_trace(drawn, config)
    except (VtwinError, InvalidConfig):
        return
    last = simulated.column("last_token_time_us").to_numpy(dtype=float, na_value=0)
    assert ((last >= 0) & (last < 1 << 53)).all()
    assert math.isfinite(last.sum())


_PAIRS = st.binary(min_size=3, max_size=3)
TARGETS = [
    Target("twin-extremes", _PAIRS, loaded, num_in_suite=150),
    Target("twin-extremes-run", _PAIRS, _run, num_in_suite=3),
]
