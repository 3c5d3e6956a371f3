"""``--shares``: the requests of each class, tenant or client come as often as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from traces import ConfigError
from traces.workload import (
    WorkloadOptions,
    load_spec,
    share_groups,
    trace_from_options,
    workload_from_options,
)

FIFTY, NINE = (f"{{type: constant, params: {{value: {number}}}}}" for number in (50, 9))
LENGTHS = f"input_distribution: {FIFTY}, output_distribution: {NINE}"
SPEC = f"""\
version: "2"
aggregate_rate: 20
num_requests: 4000
clients:
  - {{id: chat, tenant_id: north, slo_class: critical, rate_fraction: 0.2, {LENGTHS}}}
  - {{id: search, tenant_id: south, slo_class: critical, rate_fraction: 0.4, {LENGTHS}}}
  - {{id: night, tenant_id: north, slo_class: batch, rate_fraction: 0.4, {LENGTHS}}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "load.yaml"
    path.write_text(SPEC)
    return path


def drawn_shares(spec: Path, column: str, shares: str | None) -> dict[str, float]:
    """Return the share of the requests with each value of a column."""
    trace = trace_from_options(WorkloadOptions(workload=spec, shares=shares))
    names, counts = np.unique(trace.cells(column).values.astype(str), return_counts=True)
    return dict(zip(names.tolist(), (counts / counts.sum()).tolist(), strict=True))


@pytest.mark.parametrize(
    ("column", "shares", "expected"),
    [
        ("slo_class", None, {"critical": 0.6, "batch": 0.4}),
        ("slo_class", "critical=0.1,batch=0.9", {"critical": 0.1, "batch": 0.9}),
        ("slo_class", "critical=1.6", {"critical": 0.8, "batch": 0.2}),
        ("client_id", "critical=1.2", {"chat": 0.25, "search": 0.5, "night": 0.25}),
        ("tenant_id", "north=1.2, south=0.4", {"north": 0.75, "south": 0.25}),
        ("client_id", "night=9.4", {"chat": 0.02, "search": 0.04, "night": 0.94}),
    ],
)
def test_requests_come_in_the_shares_that_are_asked_for(
    spec: Path, column: str, shares: str | None, expected: dict[str, float]
) -> None:
    assert drawn_shares(spec, column, shares) == pytest.approx(expected, abs=0.025)  # three standard errors


def test_the_specification_s_own_shares_change_nothing(spec: Path) -> None:
    plain = trace_from_options(WorkloadOptions(workload=spec))
    for groups in share_groups(load_spec(spec)).values():
        said = ",".join(f"{name}={share!r}" for name, share in groups.items())
        again = trace_from_options(WorkloadOptions(workload=spec, shares=said))
        for column in ("arrival_time_us", "client_id", "input_tokens"):
            assert again.cells(column).values.tolist() == plain.cells(column).values.tolist()


def test_shares_are_those_of_the_same_specification_written_out(spec: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(SPEC.replace("rate_fraction: 0.4, ", "rate_fraction: 1.5, ", 1))
    assert (
        workload_from_options(WorkloadOptions(workload=spec, shares="search=1.5")).clients
        == load_spec(other).clients
    )


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ("critical", "--shares: got 'critical', expected NAME=SHARE"),
        ("critical=x", "--shares critical: got 'x', expected a number from 1e-06"),
        ("critical=0", "--shares critical: got '0', expected a number"),
        ("critical=nan", "--shares critical: got 'nan', expected a number"),
        ("critical=1,critical=2", "--shares critical: got it twice"),
        (
            "critical=1,north=2",
            "--shares: got critical, north, expected names of one kind: service classes critical, batch",
        ),
        ("nobody=1", "tenants north, south; clients chat, search, night"),
        ("", "--shares: got '', expected NAME=SHARE"),
    ],
)
def test_wrong_shares_are_refused_in_a_line(spec: Path, shares: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        trace_from_options(WorkloadOptions(workload=spec, shares=shares))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("replaced", "by", "said"),
    [
        ("rate_fraction: 0.2", "arrival: {process: gamma, shape: 2, scale: 9000}", "a rate of their own"),
        (
            "rate_fraction: 0.2",
            "lifecycle: {windows: [{start_us: 0, end_us: 9000000, trace_rate: 3}]}",
            "a trace_rate",
        ),
    ],
)
def test_where_shares_decide_nothing_they_are_refused(
    tmp_path: Path, replaced: str, by: str, said: str
) -> None:
    spec = tmp_path / "load.yaml"
    head, first, *_ = SPEC.split("\n  - ")
    spec.write_text(f"{head}\n  - {first}".replace(replaced, by))
    assert share_groups(load_spec(spec)) == {}
    with pytest.raises(ConfigError, match=said):
        trace_from_options(WorkloadOptions(workload=spec, shares="critical=1"))


def test_without_a_specification_there_is_nothing_to_share() -> None:
    with pytest.raises(ConfigError, match="--shares: needs --workload"):
        trace_from_options(WorkloadOptions(rate=5, shares="critical=1"))
