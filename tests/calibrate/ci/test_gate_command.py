"""The gate as a command: two small traces compared, nothing fitted."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

import vtwin
from replay import TwinConfig, dump_config
from tests.calibrate.known_servers import SERVER, observed, with_latency, workload
from traces import write_trace

GATE = "metrics: {e2e_us: {mape: {warn: 0.05, fail: 0.1}, p90: {fail: 0.1}}}\n"
BOUNDED = replace(SERVER, engine=replace(SERVER.engine, num_gpu_blocks=3000))
FLAGS = {"num_gpu_blocks": 3000, "block_size": 16, "max_num_seqs": 64, "version": "0.32.0"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a gate, an observed trace, one that is the same, and one of a server half as fast."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    drawn = workload(60, rate=3, seed=1)
    write(tmp_path / "monday", SERVER)
    write_trace(observed(drawn), tmp_path / "same")
    write_trace(observed(drawn, with_latency(SERVER, beta0=24000)), tmp_path / "slow")
    (tmp_path / "gate.yaml").write_text(GATE)
    (tmp_path / "twin.yaml").write_text(dump_config(BOUNDED))
    return tmp_path


def write(stem: Path, twin: TwinConfig, **flags: str | int | bool) -> None:
    trace = observed(workload(60, rate=3, seed=1), twin)
    server = trace.header.server.learn("given by the user", **{**FLAGS, **flags})
    write_trace(trace.with_header(server=server), stem)


def run(*arguments: str, gate: str = "gate.yaml") -> int:
    return vtwin.main(["calibrate", "monday", *arguments, "--thresholds", gate, "--report", "r"])


def report(here: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((here / "r" / "report.json").read_text())
    return found


def test_equal_traces_pass(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--simulated", "same", "--json") == 0
    assert report(here)["verdict"] == "PASS"
    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"] == "PASS"
    assert "::" not in shown.err


def test_a_gate_whose_limits_were_meant_as_percent_is_told_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "gate.yaml").write_text("metrics: {e2e_us: {mape: {fail: 10}}}\n")
    assert run("--simulated", "same") == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "100 %" in line]
    assert said == ["warning: gate.yaml: limits above 100 %: e2e_us mape: 10 is 1,000 %; 10 % is 0.1"]


def test_a_server_of_another_speed_fails_and_every_place_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    (here / "summary.md").write_text("before\n")
    assert run("--simulated", "slow", "--junit", "junit.xml") == 1
    document = report(here)
    assert document["verdict"] == "FAIL"
    assert [each["outcome"] for each in document["gate"]["checks"]] == ["FAIL", "FAIL"]  # type: ignore[index]
    assert ET.parse("junit.xml").getroot().get("failures") == "2"  # noqa: S314 - our own
    assert (here / "summary.md").read_text().startswith("before\n## Verdict: FAIL\n")
    assert (here / "r" / "report.md").read_text().startswith("# vtwin calibration\n\n## Verdict: FAIL\n")
    assert "Verdict: FAIL" in (here / "r" / "report.html").read_text()
    assert capsys.readouterr().err.count("::error title=vtwin%3A FAIL::") == 2


def test_too_few_requests_are_inconclusive(here: Path) -> None:
    (here / "more.yaml").write_text("min_samples: 61\n" + GATE)
    assert run("--simulated", "slow", gate="more.yaml") == 5
    assert report(here)["verdict"] == "INCONCLUSIVE"


def test_the_twin_of_the_same_server_passes(here: Path) -> None:
    assert run("--config", "twin.yaml") == 0
    assert report(here)["verdict"] == "PASS"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            {"num_gpu_blocks": 2000},
            "KV capacity unmatched: the server's is 2000 blocks, the twin's 3000 blocks",
        ),
        ({"max_num_seqs": 128}, "max_num_seqs: the server has 128, the twin 64"),
        ({"enable_prefix_caching": False}, "enable_prefix_caching: the server has false, the twin true"),
        ({"version": "0.11.0"}, "vllm_version: the server has 0.11.0, the twin 0.32.0"),
    ],
)
def test_a_twin_with_other_flags_than_the_server_cannot_be_judged(
    here: Path, flags: dict[str, int], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "monday", SERVER, **flags)
    assert run("--config", "twin.yaml") == 5
    assert report(here)["gate"]["obstacles"] == [f"monday: {line}"]  # type: ignore[index]
    assert f"not comparable: monday: {line}" in capsys.readouterr().out


def test_an_unknown_kv_capacity_is_an_obstacle_unless_the_gate_waives_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(observed(workload(60, rate=3, seed=1)), here / "monday")
    (here / "waived.yaml").write_text("require_kv_capacity: false\n" + GATE)
    assert run("--config", "twin.yaml") == 5
    assert "the server's is not known, the twin's 3000 blocks; with `require_kv_capacity: false`" in " ".join(
        capsys.readouterr().out.split()
    )
    assert run("--config", "twin.yaml", gate="waived.yaml") == 0


def test_flags_that_nobody_said_stand_beside_the_verdict(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (here / "twin.yaml").read_text()
    (here / "guess.yaml").write_text(
        "\n".join(line for line in text.splitlines() if "batched_tokens" not in line)
    )
    assert run("--config", "guess.yaml") == 0
    assert "verdict: PASS (flags unknown: max_num_batched_tokens)" in capsys.readouterr().out
    assert report(here)["gate"]["unknown_flags"] == ["max_num_batched_tokens"]  # type: ignore[index]
    assert "## Verdict: PASS (flags unknown: max" in (here / "r" / "report.md").read_text()
    assert "PASS (flags unknown: max" in (here / "r" / "report.html").read_text()


def test_two_traces_of_different_servers_cannot_be_judged(here: Path) -> None:
    write(here / "tuesday", SERVER, system_fingerprint="b", max_num_seqs=32)
    write(here / "monday", SERVER, system_fingerprint="a")
    assert run("--simulated", "tuesday") == 5
    assert report(here)["gate"]["obstacles"] == [  # type: ignore[index]
        "monday: max_num_seqs: one server has 64, the other 32",
        "system_fingerprint: the traces name a, b, expected one",
    ]


def test_a_gate_that_cannot_be_read_or_is_missing_stops_before_anything_is_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--simulated", "same", gate="nowhere.yaml") == 2
    assert vtwin.main(["calibrate", "monday", "--simulated", "same", "--junit", "j", "--report", "r"]) == 2
    assert "--junit: needs --thresholds" in capsys.readouterr().err
    assert not (here / "r").exists()


def test_a_baseline_excuses_what_it_shares_and_shows_the_drift(here: Path) -> None:
    assert run("--simulated", "slow") == 1
    (here / "r" / "report.json").rename(here / "bad.json")
    assert run("--simulated", "slow", "--baseline", "bad.json") == 0
    first = report(here)["gate"]["checks"][0]  # type: ignore[index]
    assert (first["excused"], first["drift"]) == (True, 0)
    assert "## Verdict: PASS (2 known failures)" in (here / "r" / "report.md").read_text()


def test_what_was_within_its_limit_in_the_baseline_blocks(here: Path) -> None:
    assert run("--simulated", "same") == 0
    (here / "r" / "report.json").rename(here / "good.json")
    assert run("--simulated", "slow", "--baseline", "good.json") == 1


def test_another_fingerprint_than_the_baselines_cannot_be_judged(here: Path) -> None:
    write(here / "monday", SERVER, system_fingerprint="a")
    assert run("--simulated", "same") == 0
    (here / "r" / "report.json").rename(here / "good.json")
    write(here / "monday", SERVER, system_fingerprint="b")
    assert run("--simulated", "same", "--baseline", "good.json") == 5
    assert report(here)["gate"]["obstacles"] == [  # type: ignore[index]
        "system_fingerprint: the traces name b, the baseline's a"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "--baseline: got No such file"),
        ("{", "--baseline: got text that is not JSON"),
        ("[]", "--baseline: got list"),
        ("{}", "schema_version: got None, expected 1"),
        ('{"schema_version": 1, "holdout": {"e2e_us": {}}}', "without the keys of a report ('rel_error')"),
    ],
)
def test_a_baseline_that_is_no_report_is_refused_in_one_line(
    here: Path, text: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (here / "old.json").write_text(text)
    assert run("--simulated", "same", "--baseline", "old.json") == 2
    assert message in capsys.readouterr().err
    assert not (here / "r").exists()


def test_a_saturated_observation_is_judged_by_its_capacity(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = workload(150, rate=60, seed=2)
    server = observed(drawn).header.server.learn("given by the user", **FLAGS)
    write_trace(observed(drawn, BOUNDED).with_header(server=server), here / "monday")
    assert run("--config", "twin.yaml") == 5
    assert "saturated" in capsys.readouterr().out
    rates = "rates: {output_token_throughput: {rel_error: {fail: 0.05}}}\n"
    (here / "capacity.yaml").write_text(GATE + rates)
    assert run("--config", "twin.yaml", gate="capacity.yaml") == 0
    assert [each["set_aside"] for each in report(here)["gate"]["checks"]] == [True, True, False, False]  # type: ignore[index]
    (here / "twin.yaml").write_text(
        dump_config(replace(BOUNDED, latency=with_latency(SERVER, beta2=900).latency))
    )
    assert run("--config", "twin.yaml", gate="capacity.yaml") == 1


def test_equivalence_and_rates_can_be_demanded_and_compared_with_a_baseline(here: Path) -> None:
    (here / "more.yaml").write_text(
        "equivalence: {e2e_us: 0.05}\nrates: {request_throughput: {rel_error: {fail: 0.02}}}\n"
    )
    assert run("--simulated", "same", gate="more.yaml") == 0
    assert report(here)["equivalence"]["e2e_us"]["equivalent"] is True  # type: ignore[index]
    (here / "r" / "report.json").rename(here / "good.json")
    assert run("--simulated", "slow", "--baseline", "good.json", gate="more.yaml") == 1
    assert report(here)["gate"]["checks"][0]["baseline"]["value"] == 0  # type: ignore[index]
