"""An SLO that is missed is a failure where it is asked to be: one sentence and one exit code for every command."""

from __future__ import annotations

import pytest
import typer

from traces import ConfigError, Header, make_trace
from traces.console.slo_gate import SloGate
from traces.slo import Goodput


def good(frac: float | None) -> Goodput:
    return Goodput(
        num_requests=100,
        good_frac=frac,
        good_per_s=1.0,
        met_frac={},
        slo_us={},
        num_without_target=0,
        num_not_measured=0,
        by_class={},
    )


@pytest.mark.parametrize(
    ("gate", "frac"), [(SloGate(strict_slo=True), 0.98), (SloGate(fail_below="95%"), 0.94)]
)
def test_a_missed_slo_is_a_line_and_exit_code_one(
    gate: SloGate, frac: float, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        gate.check({"": good(frac)})
    assert ended.value.exit_code == 1
    assert f"the SLO is missed: {100 * frac:g} % of the requests meet it" in capsys.readouterr().err


def test_a_kept_slo_and_no_gate_end_well() -> None:
    SloGate().check({"": good(0.1)})
    SloGate(strict_slo=True).check({"": good(0.99)})
    SloGate(strict_slo=True, fail_below="0.5").check({"": good(0.6)})


def test_what_was_not_measured_is_inconclusive() -> None:
    with pytest.raises(typer.Exit) as ended:
        SloGate(strict_slo=True).check({"": good(None)})
    assert ended.value.exit_code == 5


def test_each_result_that_misses_has_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        SloGate(strict_slo=True).check({"a": good(0.5), "b": good(1.0), "c": good(0.2)})
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["a", "c"]


@pytest.mark.parametrize("text", ["95 percent", "0", "101%", "-1", "nan"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a share of the requests"):
        SloGate(fail_below=text)


def test_a_gate_without_a_limit_is_refused_before_anything_runs() -> None:
    trace = make_trace(
        Header(tool="vtwin", mode="generated"),
        {"request_id": ["0"], "arrival_time_us": [0], "input_tokens": [1], "output_tokens": [1]},
    )
    SloGate().needs_limits(trace, {})
    SloGate(strict_slo=True).needs_limits(trace, {"ttft": 1e6})
    with pytest.raises(ConfigError, match="got no latency limit"):
        SloGate(strict_slo=True).needs_limits(trace, {})
