"""A run asked from Python: the same as the commands', for one server and for many, each thing worked out once."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import replay
import vtwin
from replay.simulation import run_plan
from tests.twins import FOUR_THOUSAND_BLOCKS
from traces.errors import ConfigError
from traces.facts.written import say_json
from traces.workload import WorkloadOptions, trace_from_options

LOAD = WorkloadOptions(rate=8, num_requests=200, prompt_tokens=600, output_tokens=60, seed=1)
ASKED = [
    "--rate",
    "8",
    "--num-requests",
    "200",
    "--prompt-tokens",
    "600",
    "--output-tokens",
    "60",
    "--seed",
    "1",
]
FOUR = FOUR_THOUSAND_BLOCKS + "cluster: {pools: [{instances: 4}], routing: {policy: round-robin}}\n"
ANALYTIC = """\
hardware: H100
latency: {model: roofline, model_config: meta-llama/Llama-3.1-8B}
engine: {max_num_seqs: 64, max_model_len: 8192}
"""
BEHIND_A_ROUTER = FOUR.replace("round-robin", "power-of-two")
APART = f"""{FOUR_THOUSAND_BLOCKS}cluster:
  pools: [{{name: p, role: prefill}}, {{name: d, role: decode}}]
  disaggregation: {{kv_bytes_per_token: 131072}}
"""
CPU_TIME = re.compile(r'"engine_cpu_s": [\d.e-]+')
"""What a run cost, which differs each time."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    """Return a command's JSON."""
    assert vtwin.main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


@pytest.mark.parametrize("text", [FOUR_THOUSAND_BLOCKS, FOUR], ids=["one server", "four"])
def test_the_mean_ttft_is_told_by_what_it_is_spent_on(
    here: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """The front end takes 500 µs and 2 µs a prompt token; prefill is what the trace has."""
    (here / "twin.yaml").write_text(text)
    words = ("run", "--config", "twin.yaml", *ASKED, "--prompt-tokens-stdev", "0", "--output", "seen")
    found = told(capsys, *words)
    parts, rows = found["ttft_parts_us"], pd.read_csv("seen.csv")
    assert parts["front_end"] == 500 + 2 * 600
    assert parts["prefill"] == pytest.approx(rows["server_prefill_us"].mean())
    assert parts["queue"] == pytest.approx(rows["server_queue_us"].mean()) == found["queue_us"]["mean"]
    assert parts["step_under_way"] > 0
    assert sum(parts.values()) == pytest.approx(found["ttft_us"]["mean"])
    assert vtwin.main([*words, "--overwrite"]) == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith("of TTFT"))
    assert line.endswith("prefill, 1.7 ms front end")


@pytest.mark.parametrize(
    ("text", "more", "load", "settings"),
    [
        (FOUR_THOUSAND_BLOCKS, [], LOAD, None),
        (FOUR_THOUSAND_BLOCKS, ["--rounds", "3"], replace(LOAD, rounds=3), None),
        (FOUR, [], LOAD, None),
        (
            BEHIND_A_ROUTER,
            ["--slo", "ttft=200ms", "--counterfactual", "2", "--fitness-weights", "throughput=1"],
            LOAD,
            replay.RunSettings(slo_us={"ttft": 2e5}, counterfactual=2, fitness_weights={"throughput": 1.0}),
        ),
        (APART, [], LOAD, None),
        (ANALYTIC, ["--operator-times"], LOAD, replay.RunSettings(operator_times=True)),
        (ANALYTIC, ["--no-kv-check"], LOAD, replay.RunSettings(checks_memory=False)),
    ],
    ids=["a server", "sessions", "four", "a router", "P/D", "operators", "no check"],
)
def test_a_run_s_document_is_what_the_command_prints(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    more: list[str],
    load: WorkloadOptions,
    settings: replay.RunSettings | None,
) -> None:
    (here / "twin.yaml").write_text(text)
    assert vtwin.main(["run", "--config", "twin.yaml", *ASKED, *more, "--json"]) == 0
    printed = capsys.readouterr().out
    say_json(replay.run(trace_from_options(load), "twin.yaml", settings).document())
    ours = capsys.readouterr().out
    assert CPU_TIME.sub("", ours) == CPU_TIME.sub("", printed)
    assert CPU_TIME.search(printed)


def test_a_run_has_its_servers_and_its_requests(here: Path) -> None:
    (here / "twin.yaml").write_text(FOUR)
    run = replay.run(trace_from_options(LOAD), "twin.yaml")
    assert len(run.fleet.result.instances) == 4
    assert run.latencies()["e2e_us"].mean() == pytest.approx(run.summary["e2e_us"]["mean"])


def test_what_is_asked_twice_is_worked_out_once(here: Path) -> None:
    (here / "twin.yaml").write_text(FOUR_THOUSAND_BLOCKS)
    run = replay.run(trace_from_options(LOAD), replay.load_config("twin.yaml"))
    assert run.summary is run.summary
    assert run.judged is run.judged
    assert run.stepped is run.stepped
    assert run.usage is run.usage


SEVERAL_GROUPS = FOUR_THOUSAND_BLOCKS.replace(
    "engine: {", "engine: {kv_cache_groups: [{kind: full}, {kind: sliding, window: 512}], "
)


@pytest.mark.parametrize(("text", "num_further"), [(FOUR_THOUSAND_BLOCKS, 0), (SEVERAL_GROUPS, 1), (FOUR, 0)])
def test_what_was_in_use_takes_no_second_run_but_with_several_kv_cache_groups(
    here: Path, monkeypatch: pytest.MonkeyPatch, text: str, num_further: int
) -> None:
    (here / "twin.yaml").write_text(text)
    asked = []
    real = run_plan.simulate_fleet

    def counted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as it is called
        asked.append(kwargs["points"])
        return real(*args, **kwargs)

    monkeypatch.setattr(run_plan, "simulate_fleet", counted)
    run = replay.run(trace_from_options(LOAD), "twin.yaml")
    assert run.summary["num_requests"] == 200
    assert len(asked) == 1
    assert run.over_time is not None
    assert run.usage.running.max() > 0
    assert run.usage.kv_frac is not None
    assert len(asked) == 1 + num_further
    assert asked[-1] is not None
    assert run.watched.simulation.duration_us == run.simulation.duration_us


def test_steps_are_taken_one_at_a_time_once_whatever_is_asked_of_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "twin.yaml").write_text(ANALYTIC)
    recorded = []
    real = run_plan.simulate_fleet

    def counted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as it is called
        recorded.append(kwargs["record"])
        return real(*args, **kwargs)

    monkeypatch.setattr(run_plan, "simulate_fleet", counted)
    steps = ["--steps", "steps.csv", "--operator-times", "--trace-events", "events.json"]
    assert vtwin.main(["run", "--config", "twin.yaml", *ASKED, *steps, "--no-kv-check"]) == 0
    assert recorded == ["spans", "steps"]
    assert {each.name for each in here.iterdir()} >= {"steps.csv", "events.json"}


def test_a_run_that_a_horizon_cuts_has_no_verdict(here: Path) -> None:
    (here / "twin.yaml").write_text(FOUR_THOUSAND_BLOCKS)
    twin, asked = replay.load_config("twin.yaml"), trace_from_options(LOAD)
    cut = replay.run(asked, twin, replay.RunSettings(horizon_us=5_000_000))
    assert cut.judged is None
    assert cut.summary["verdict"] is None
    assert cut.summary["incomplete"] is not None
    assert replay.run(asked, twin).summary["verdict"] is not None


def test_a_capacity_is_the_command_s(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "twin.yaml").write_text(FOUR_THOUSAND_BLOCKS)
    slo, lengths = (
        "tpot_p99=20ms",
        ["--prompt-tokens", "600", "--output-tokens", "60", "--num-requests", "500"],
    )
    by_command = told(
        capsys, "capacity", "--config", "twin.yaml", "--slo", slo, *lengths, "--seeds", "2", "--no-binding"
    )
    workload = WorkloadOptions(num_requests=500, prompt_tokens=600, output_tokens=60)
    twin = replay.load_config("twin.yaml")
    found = replay.find_capacity(workload, twin, slo, seeds=2, with_binding=False)
    assert found.rate_per_s == by_command["rate"]
    assert f"{found.rate_per_s:.4g} requests/s" in str(found)
    assert repr(found) == f"<Capacity: {found}>"
    with pytest.raises(ConfigError, match="--rate: cannot be combined with a search for a rate"):
        replay.find_capacity(LOAD, twin, slo)


def test_a_recorded_load_has_a_capacity_too(here: Path) -> None:
    (here / "twin.yaml").write_text(FOUR_THOUSAND_BLOCKS)
    found = replay.find_capacity(
        trace_from_options(LOAD), replay.load_config("twin.yaml"), "tpot_p99=20ms", with_binding=False
    )
    assert found.rate_per_s is not None
    assert found.num_seeds == 1


def test_flags_are_tuned_as_the_command_tunes_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "twin.yaml").write_text(FOUR_THOUSAND_BLOCKS)
    lengths = ["--prompt-tokens", "600", "--output-tokens", "60", "--num-requests", "3000", "--seeds", "2"]
    asked = ["tune", "--config", "twin.yaml", "--slo", "ttft_p99=500ms", "--top", "1", *lengths]
    varied = ["engine.max_num_seqs=4,64", "engine.max_num_batched_tokens=2048"]
    by_command = told(capsys, *asked, "--set", varied[0], "--set", varied[1])
    workload = WorkloadOptions(num_requests=3000, prompt_tokens=600, output_tokens=60)
    tuned = replay.tune(workload, "twin.yaml", "ttft_p99=500ms", settings=varied, keep=1, seeds=2)
    assert tuned.best[0][1].rate_per_s == by_command["best"][0]["rate"]


def test_a_sweep_is_the_command_s_table(here: Path) -> None:
    (here / "twin.yaml").write_text(FOUR_THOUSAND_BLOCKS)
    (here / "grid.yaml").write_text(
        "config: twin.yaml\nset: {engine.max_num_seqs: [4, 64]}\n"
        "workloads: {a: {rate: 8, num_requests: 60, prompt_tokens: 600, output_tokens: 60}}\n"
    )
    table = replay.sweep("grid.yaml", jobs=1)
    assert vtwin.main(["sweep", "grid.yaml", "--jobs", "1"]) == 0
    written = pd.read_parquet("grid.parquet")
    assert table["engine.max_num_seqs"].tolist() == written["engine.max_num_seqs"].tolist() == [4, 64]
    for name in ("ttft_us.p99", "output_token_throughput", "num_steps"):
        np.testing.assert_allclose(table[name].to_numpy(float), written[name].to_numpy(float))


def test_a_path_is_a_twin_and_a_key_is_changed_by_its_text(here: Path) -> None:
    (here / "twin.yaml").write_text(FOUR_THOUSAND_BLOCKS)
    asked = trace_from_options(LOAD)
    by_path, _ = replay.simulate_trace(asked, "twin.yaml")
    read, _ = replay.simulate_trace(asked, replay.load_config("twin.yaml"))
    assert by_path.requests.equals(read.requests)
    assert replay.paced("twin.yaml", 2.0) == replay.paced(replay.load_config("twin.yaml"), 2.0)
    sized = [replay.plan_fleet(asked, 100, "ttft_p99=500ms", each, verify=False) for each in twin_paths(here)]
    assert sized[0].pools.equals(sized[1].pools)
    narrow = replay.load_config("twin.yaml", settings=["engine.max_num_seqs=8"])
    assert narrow.engine.max_num_seqs == 8
    for wrong, said in (
        ("engine.max_num_seqs=8,16", "expected one value of a key"),
        ("max_num_seqs", "expected KEY=VALUE"),
        ("engine.max_num_seq=8", "max_num_seqs"),
    ):
        with pytest.raises(ConfigError, match=said):
            replay.load_config("twin.yaml", settings=[wrong])
    with pytest.raises(ConfigError, match=r"config: got a TwinConfig, expected the path of TWIN\.yaml"):
        replay.tune(WorkloadOptions(num_requests=10), narrow, "ttft_p99=1s")  # type: ignore[arg-type]


def twin_paths(folder: Path) -> tuple[Path, str]:
    return folder / "twin.yaml", str(folder / "twin.yaml")
