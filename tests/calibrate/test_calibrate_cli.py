import json
from pathlib import Path

import pytest

import vtwin
from replay import dump_config, load_config, read_defaults
from tests.calibrate.known_servers import GUESS, observed, workload
from traces import read_trace, write_trace


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two observed traces, a simulated one and a configuration."""
    monkeypatch.chdir(tmp_path)
    for name, rate, seed in (("low", 3, 1), ("high", 8, 2)):
        trace = observed(workload(60, rate=rate, seed=seed))
        server = trace.header.server.learn("given by the user", model="tiny", version="0.32.0")
        write_trace(trace.with_header(server=server), tmp_path / name)
    write_trace(observed(workload(60, rate=3, seed=1), GUESS), tmp_path / "simulated")
    (tmp_path / "guess.yaml").write_text(dump_config(GUESS))
    return tmp_path


def run(*arguments: str) -> int:
    return vtwin.main(["calibrate", *arguments])


def test_two_traces_are_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("low", "--simulated", "simulated.csv", "--report", "report", "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == json.loads((here / "report" / "report.json").read_text())
    assert "E2E" in shown.err
    assert "report: " in shown.err
    assert {path.name for path in (here / "report").iterdir()} == {"report.json", "report.md", "report.html"}


@pytest.mark.usefixtures("here")
def test_results_are_on_stdout_and_narration_is_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("low", "--simulated", "simulated.csv", "--report", "report") == 0
    shown = capsys.readouterr()
    assert "errors: compared with simulated" in shown.out
    assert shown.out.splitlines()[-1].startswith("E2E error: ")
    assert shown.err.splitlines()[-1] == "report: report/report.html"
    assert "E2E" not in shown.err


def test_a_gates_verdict_is_a_result_and_leaves_json_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "gate.yaml").write_text("require_kv_capacity: false\nmetrics: {e2e_us: {mape: {fail: 0.0001}}}\n")
    asked = ["low", "--config", "guess.yaml", "--report", "report", "--thresholds", "gate.yaml"]
    assert run(*asked) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: FAIL"
    assert run(*asked, "--json") == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"] == "FAIL"
    assert "verdict: FAIL" in shown.err


def test_a_fit_is_written_as_a_twin_and_as_an_entry(here: Path) -> None:
    written = [
        "--latency-model",
        "blackbox",
        "--write-config",
        "twin.yaml",
        "--write-defaults",
        "mine.yaml",
        "--gpu",
        "H100",
        "--tp",
        "1",
    ]
    assert (
        run("low", "--config", "guess.yaml", "--fit", "--holdout", "high", "--report", "report", *written)
        == 0
    )
    document = json.loads((here / "report" / "report.json").read_text())
    twin = load_config(here / "twin.yaml")
    assert float(twin.latency.beta0) == pytest.approx(
        document["fit"]["coefficients"]["beta0"]["value"], abs=1e-3
    )
    assert document["config"]["latency"]["coefficients"]["beta0"] == pytest.approx(float(twin.latency.beta0))
    (entry,) = read_defaults(here / "mine.yaml")
    assert (entry.model, entry.gpu, entry.tp, entry.vllm_version) == ("tiny", "H100", 1, "0.32.0")
    assert entry.provenance.traces == ("low", "high")
    assert entry.provenance.digests == tuple(each["digest"] for each in document["traces"])
    fitted = document["fit"]["coefficients"]["beta0"]
    bounds = (entry.provenance.low["beta0"], entry.provenance.high["beta0"])
    assert bounds == pytest.approx((fitted["low"], fitted["high"]), rel=1e-4)
    assert entry.provenance.async_scheduling is False
    assert entry.provenance.tool_version == document["provenance"]["tool_version"]
    assert entry.provenance.errors["e2e_mape"] == pytest.approx(
        document["holdout"]["e2e_us"]["mape"]["value"], rel=1e-3
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["low", "--report", "r"], 2, "got neither, expected one of them"),
        (["low", "--config", "guess.yaml", "--write-config", "t.yaml", "--report", "r"], 2, "needs --fit"),
        (["low", "--config", "nowhere.yaml", "--report", "r"], 2, "nowhere.yaml"),
        (["nowhere", "--config", "guess.yaml", "--report", "r"], 3, "nowhere"),
        (["low", "--config", "guess.yaml", "--report", "guess.yaml/r"], 2, "--report: got"),
        (
            [
                "low",
                "--config",
                "guess.yaml",
                "--fit",
                "--latency-model",
                "blackbox",
                "--write-defaults",
                "d.yaml",
                "--report",
                "r",
            ],
            2,
            "--gpu: got nothing",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    here: Path, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == code
    assert message in capsys.readouterr().err
    assert not (here / "r").exists()
    assert not (here / "d.yaml").exists()


def test_traces_without_a_common_request_are_bad_input_unless_paired_by_order(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = observed(workload(60, rate=3, seed=1))
    renamed = trace.with_columns(request_id=[f"x{i}" for i in range(60)])
    write_trace(renamed, here / "renamed")
    assert run("low", "--simulated", "renamed", "--report", "r") == 3
    assert "60 unmatched_observed, 60 unmatched_simulated" in capsys.readouterr().err
    assert run("low", "--simulated", "renamed", "--pair-by", "order", "--report", "r") == 0
    assert json.loads((here / "r" / "report.json").read_text())["holdout"]["e2e_us"]["mape"]["value"] == 0


def test_an_entry_holds_every_term_of_an_extended_fit(here: Path) -> None:
    text = (here / "guess.yaml").read_text().replace("blackbox", "extended")
    (here / "extended.yaml").write_text(text)
    to = ["--write-defaults", "mine.yaml", "--gpu", "H100", "--tp", "1", "--model", "acme/tiny"]
    kept = ["--write-config", "twin.yaml", "--report", "r"]
    assert (
        run("low", "high", "--config", "extended.yaml", "--fit", "--latency-model", "extended", *kept, *to)
        == 0
    )
    (entry,) = read_defaults(here / "mine.yaml")
    assert entry.latency_model == "extended"
    assert float(entry.coefficients["floor"]) > 0
    assert entry.latency(seed=42) == load_config(here / "twin.yaml").latency


def test_repeat_slo_network_margin_and_the_peers_format_reach_the_report(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = observed(workload(60, rate=3, seed=1), noise=0.05, seed=7)
    write_trace(again, here / "again")
    told = ["--slo", "ttft=200ms,e2e=2s", "--network", "rtt=1ms", "--margin", "0.5", "--repeat", "again"]
    command = ["low", "--config", "guess.yaml", "--report", "r", *told, "--format", "blis", "--json"]
    assert run(*command) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == json.loads((here / "r" / "report.blis.json").read_text())
    document = json.loads((here / "r" / "report.json").read_text())
    assert document["repeats"] == [["low", "again"]]
    assert document["noise_floor"]["ttft_us"]["mape"]["value"] > 0.01
    assert document["rates"]["holdout"]["goodput"]["observed"] is not None
    assert document["network"]["rtt_us"] == 1000
    assert document["equivalence"]["e2e_us"]["margin"] == 0.5
    text = (here / "r" / "report.md").read_text()
    for told_once in (
        "noise floor",
        "a round trip of 1.00",
        "A good request meets ttft",
        "equivalence of means",
    ):
        assert told_once in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--slo", "speed=1s"], 2, "--slo: got 'speed'"),
        (["--network", "rtt=measured"], 2, "no network.measured_rtt_ms"),
        (["--repeat", "high"], 3, "--repeat high: got requests that none of low has"),
    ],
)
def test_circumstances_that_cannot_be_are_refused_before_anything_is_written(
    here: Path, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("low", "--config", "guess.yaml", "--report", "r", *arguments) == code
    assert message in capsys.readouterr().err
    assert not (here / "r").exists()


def test_what_the_simulation_does_not_follow_is_told_and_in_the_report(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = read_trace(here / "low")
    write_trace(trace.with_columns(image_tokens=[5] * len(trace)), here / "pictures")
    assert run("pictures", "--config", "guess.yaml", "--report", "report") == 0
    said = "image tokens count as prompt tokens (input_tokens)"
    assert f"note: pictures: {said}" in capsys.readouterr().err
    document = json.loads((here / "report" / "report.json").read_text())
    assert any(note.startswith(said) for note in document["traces"][0]["notes"])
    assert said in (here / "report" / "report.md").read_text()


def test_a_cap_that_no_header_says_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from calibrate.calibration_run import calibrate as fitted
    from calibrate.calibration_run import compare_with_twin
    from calibrate.findings import Options
    from replay import simulate_trace
    from tests.calibrate.known_servers import GUESS, SERVER, source, workload

    due = workload(80, rate=12, seed=4)
    capped, _ = simulate_trace(due, SERVER, max_concurrency=3)
    unsaid = source("capped", capped)
    errors = {
        cap: compare_with_twin([unsaid], SERVER, Options(replicates=60, max_concurrency=cap))
        .holdout["e2e_us"]
        .mape.value
        for cap in (None, 3)
    }
    assert errors[3] == pytest.approx(0, abs=1e-3)
    found = fitted([unsaid], GUESS, Options(replicates=60, max_concurrency=3, latency_model="blackbox"))
    assert any("at most 3 in flight" in note for each in found.traces for note in each.notes)
    assert found.holdout["e2e_us"].mape.value == pytest.approx(0, abs=0.02)
    monkeypatch.chdir(tmp_path)
    write_trace(capped, tmp_path / "capped")
    (tmp_path / "twin.yaml").write_text(dump_config(SERVER))
    told = ["calibrate", "capped", "--config", "twin.yaml", "--report", "r", "--max-concurrency", "3"]
    assert vtwin.main(told) == 0
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["holdout"]["e2e_us"]["mape"]["value"] == pytest.approx(0, abs=1e-3)


def test_a_header_that_says_other_flags_than_the_twin_stops_the_fit(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = read_trace(here / "low")
    server = trace.header.server.learn("/metrics", max_num_seqs=32)
    write_trace(trace.with_header(server=server), here / "said")
    asked = ("said", "--config", "guess.yaml", "--report", "report", "--fit", "--latency-model", "blackbox")
    assert run(*asked) == 2
    told = capsys.readouterr().err
    assert "engine.max_num_seqs: got 64, expected 32, which the header of said says" in told
    assert "--accept-flags" in told
    assert run(*asked, "--accept-flags") == 0
    assert "warning: engine.max_num_seqs: got 64" in capsys.readouterr().err


def test_a_fit_without_a_twin_starts_from_the_header(here: Path) -> None:
    trace = read_trace(here / "low")
    server = trace.header.server.learn("/metrics", max_num_seqs=32, async_scheduling=False)
    write_trace(trace.with_header(server=server), here / "said")
    asked = ("said", "--fit", "--latency-model", "blackbox", "--report", "report")
    assert run(*asked, "--write-config", "fitted.yaml") == 0
    assert load_config(here / "report" / "start.yaml").engine.max_num_seqs == 32
    assert load_config(here / "fitted.yaml").engine.max_num_seqs == 32
