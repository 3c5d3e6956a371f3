"""Tune: against every candidate measured in full, on a live server, and as a user calls it."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import vtwin
from replay.capacity.capacity import capacity_of_draws, short_run_note
from replay.capacity.text import facts_of
from replay.search.highest import TOLERANCE
from replay.search.workload_draws import Drawing
from replay.tuning import candidate_search
from replay.tuning.candidate_search import ALIKE, search
from replay.tuning.candidates import candidates_of
from replay.tuning.flags import flags_of
from replay.tuning.live import at_rate
from replay.tuning.text import _more
from replay.twin.keys.overlay import Setting
from tests.twins import LLAMA_ON_H100
from traces import ConfigError, Trace
from traces.run_slo import parse_run_slo
from traces.workload import WorkloadOptions, trace_from_options

TWIN = """\
engine:
  {max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 600, max_model_len: 1024, async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}
"""
LIMITS = parse_run_slo("ttft_p95=400ms,tpot_p99=12ms")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "twin.yaml").write_text(TWIN)
    return tmp_path / "twin.yaml"


def drawn(num_requests: int = 600) -> Trace:
    options = WorkloadOptions(
        rate=1.0, prompt_tokens=200, output_tokens=60, num_requests=num_requests, seed=1
    )
    return trace_from_options(options)


def drawn_with_seed(seed: int, num_requests: int = 3000) -> Trace:
    options = WorkloadOptions(
        rate=1.0, prompt_tokens=200, output_tokens=60, num_requests=num_requests, seed=seed
    )
    return trace_from_options(options)


def test_the_best_is_what_measuring_every_candidate_in_full_finds(config: Path) -> None:
    found = candidates_of(
        config, None, ["engine.max_num_seqs=4,8,16,32,64", "engine.max_num_batched_tokens=128,512"]
    )
    trace = drawn()
    tuned = search([trace], found.tried, LIMITS, keep=2)
    rates = {
        each.name: capacity_of_draws([trace], each.twin, LIMITS, with_binding=False).rate_per_s or 0.0
        for each in found.tried
    }
    assert len(rates) == 10
    assert max(rates.values()) > 1.3 * rates["as it is"]
    best = sorted(rates.values(), reverse=True)[:2]
    for (candidate, capacity), rate in zip(tuned.best, best, strict=True):
        assert capacity.rate_per_s == rates[candidate.name]
        assert rates[candidate.name] >= rate * (1 - ALIKE - TOLERANCE)
    own, *shown = str(tuned).splitlines()
    assert own == f"as it is: {tuned.own[1]}"
    assert [line.endswith(f": {each}") for line, (_, each) in zip(shown, tuned.best, strict=True)] == [
        True,
        True,
    ]
    assert repr(tuned) == f"<Tuned: {own}>"


def test_the_advice_is_the_same_for_few_requests_and_many(config: Path) -> None:
    found = candidates_of(
        config, None, ["engine.max_num_seqs=8,16,32,64", "engine.max_num_batched_tokens=256,512,1024"]
    )
    limits = parse_run_slo("ttft_p95=400ms,tpot_p99=20ms")
    tuned = [search([drawn(number)], found.tried, limits, keep=1) for number in (1000, 2000)]
    assert len({each.best[0][0].name for each in tuned}) == 1
    assert all(each.num_alike > 1 for each in tuned)


def test_the_gain_has_an_interval_over_draws_of_the_same_requests(config: Path) -> None:
    found = candidates_of(config, None, ["engine.max_num_seqs=16,64", "engine.max_num_batched_tokens=512"])
    traces = [drawn(3000), drawn_with_seed(2), drawn_with_seed(3)]
    tuned = search(traces, found.tried, LIMITS, keep=1)
    assert tuned.gain is not None
    assert tuned.gain_interval is not None
    low, high = tuned.gain_interval
    assert low < tuned.gain < high
    own, best = tuned.own[1], tuned.best[0][1]
    assert own.low is not None
    assert own.high is not None
    assert best.rate_per_s is not None
    ratios = [b / a for a, b in zip(own.of_parts, best.of_parts, strict=True)]
    assert min(ratios) > 1
    assert low > 0


def test_a_run_too_short_for_queues_to_grow_is_told(config: Path) -> None:
    twin = candidates_of(config, None, ["engine.max_num_seqs=16"]).tried[0].twin
    notes = []
    for number in (60, 2000):
        capacity = capacity_of_draws([drawn(number)], twin, LIMITS, with_binding=False)
        notes.append(short_run_note(capacity, number))
        (answer, *_) = facts_of(capacity, LIMITS, twin=twin, lengths="")
        assert answer[1].endswith(" or more: the runs are too short to tell") is (number == 60)
    assert notes[0] is not None
    assert notes[0].startswith("60 requests are too few")
    assert notes[1] is None


def test_servers_are_ranked_by_runs_that_are_long_enough_for_the_best(config: Path) -> None:
    """600 requests are too few of a server with many seats: longer runs are asked for, and drawn by itself."""
    config.write_text(TWIN.replace("num_gpu_blocks: 600", "num_gpu_blocks: 20000"))
    fixed = ["engine.max_num_batched_tokens=512", "engine.enable_chunked_prefill=true"]
    found = candidates_of(config, None, ["engine.max_num_seqs=8,16,512", *fixed])
    limits = parse_run_slo("ttft_p95=400ms,tpot_p99=200ms")
    short = search([drawn(600)], found.tried, limits, keep=1)
    assert short.asks > 600
    lengths: list[int] = []

    def drawing(num_requests: int, seeds: int) -> list[Trace]:
        lengths.append(num_requests)
        return [drawn(min(num_requests, 12_000))] * seeds

    tuned = search(
        [drawn(600)], found.tried, limits, keep=1, drawing=Drawing(draw=drawing, seeds=1, most_seeds=1)
    )
    assert tuned.asks == 0
    assert max(lengths) > 600
    assert tuned.best[0][0].name == "max_num_seqs=512"


def test_the_best_few_are_measured_longer_only_where_the_gain_is_not_clear(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the seats serve more by far, a quarter serves less; a step a little shorter, a little more."""
    monkeypatch.setattr(candidate_search, "NUM_CLEAR", 9_000)
    monkeypatch.setattr(candidate_search, "NUM_MEASURED", 18_000)
    fixed = ["engine.max_num_batched_tokens=512", "engine.enable_chunked_prefill=true"]
    for varied, asked in (
        (["engine.max_num_seqs=16,64"], [3000]),
        (["engine.max_num_seqs=4,16"], [3000]),
        (["latency.coefficients.beta2=14,20", "engine.max_num_seqs=16"], [3000, 6000]),
    ):
        found = candidates_of(config, None, [*varied, *fixed])
        lengths: list[int] = []

        def drawing(num_requests: int, seeds: int, lengths: list[int] = lengths) -> list[Trace]:
            lengths.append(num_requests)
            return [drawn_with_seed(seed, num_requests) for seed in range(seeds)]

        tuned = search(
            [drawn(3000)], found.tried, LIMITS, keep=1, drawing=Drawing(draw=drawing, seeds=3, most_seeds=3)
        )
        assert lengths == asked
        assert {each.num_requests for each in (tuned.own[1], tuned.best[0][1])} == {asked[-1]}


def test_one_rate_is_no_rates(config: Path) -> None:
    twin = candidates_of(config, None, ["engine.max_num_seqs=16"]).tried[0].twin
    found = capacity_of_draws([drawn(60)], twin, LIMITS, with_binding=False)
    for rates, said in ((1, "60 requests at 1 rate, "), (2, "60 requests at 2 rates, ")):
        few = replace(found, evaluations=found.evaluations[:rates])
        facts = dict(facts_of(few, LIMITS, twin=twin, lengths=""))
        assert facts["simulated"].startswith(said)


def test_each_row_of_the_table_stands_on_its_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = ["--prompt-tokens", "200", "--output-tokens", "60"]
    options = [
        *lengths,
        "--num-requests",
        "3000",
        "--seeds",
        "1",
        "--max-num-seqs",
        "16,32",
        "--slo",
        "ttft_p95=400ms",
    ]
    assert vtwin.main(["tune", "--config", str(config), *options]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in shown if line.startswith("capacity")] == ["capacity, requests/s"]
    gpus = ["--gpus", "H100", "--rate", "1", "--num-requests", "20"]
    assert vtwin.main(["model", "compare", "--model-config", "meta-llama/Llama-3.1-8B", *gpus]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len([line for line in shown if line.startswith(("capacity", "max_model_len"))]) >= 2


def test_where_gpus_differ_in_number_the_rate_per_gpu_decides(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(LLAMA_ON_H100)
    fixed = [
        "engine.max_num_seqs=32",
        "engine.max_num_batched_tokens=2048",
        "engine.enable_chunked_prefill=true",
    ]
    found = candidates_of(tmp_path / "twin.yaml", None, [*fixed, "hardware.tp=1,2"])
    assert [each.num_gpus for each in found.tried] == [1, 2]
    tuned = search([drawn()], found.tried, parse_run_slo("tpot_p99=50ms"), keep=2)
    rates = {each.num_gpus: capacity.rate_per_s for each, capacity in tuned.best}
    assert rates[2] is not None
    assert rates[1] is not None
    assert tuned.is_per_gpu
    assert rates[1] < rates[2] < 2 * rates[1]
    assert tuned.best[0][0].num_gpus == 1


def test_what_vllm_would_refuse_is_no_candidate(config: Path) -> None:
    found = candidates_of(config, None, ["engine.max_num_seqs=16", "engine.max_num_batched_tokens=512,1024"])
    assert [each.name for each in found.tried] == [
        "as it is",
        "max_num_batched_tokens=1024",
        "max_num_batched_tokens=1024, enable_chunked_prefill=false",
    ]
    assert len(found.impossible) == 1
    assert "without chunked prefill less than one sequence of max_model_len 1024" in found.impossible[0][1]


def test_settings_become_flags_of_vllm_serve() -> None:
    settings = [
        Setting("engine.max_num_seqs", "64"),
        Setting("engine.enable_chunked_prefill", "false"),
        Setting("hardware.tp", "2"),
    ]
    assert flags_of(settings) == [
        *("--max-num-seqs", "64"),
        "--no-enable-chunked-prefill",
        *("--tensor-parallel-size", "2"),
    ]
    with pytest.raises(ConfigError, match=r"^latency.coefficients.beta0: .* vllm serve has no flag for it"):
        flags_of([Setting("latency.coefficients.beta0", "1")])


def test_a_live_load_is_the_first_requests_at_the_rate() -> None:
    trace = drawn(400)
    load = at_rate(trace, 20.0, duration_s=10)
    arrival = load.column("arrival_time_us").to_numpy()
    assert len(load) == 200
    assert arrival.max() == pytest.approx(199 / 20 * 1e6, abs=1)
    assert list(load.column("input_tokens")) == list(trace.column("input_tokens")[:200])


@pytest.fixture
def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


SERVER = """\
import subprocess, sys
from pathlib import Path
flags = dict(zip(sys.argv[3::2], sys.argv[4::2]))
text = Path(sys.argv[1]).read_text().replace("max_num_seqs: 16", "max_num_seqs: " + flags["--max-num-seqs"])
Path("served.yaml").write_text(text)
sys.exit(subprocess.call([sys.executable, "-m", "vtwin", "serve", "--config", "served.yaml", "--port", sys.argv[2]]))
"""


def test_the_best_is_confirmed_on_a_live_server(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free_port: int,
) -> None:
    """A server of known truth, started with the flags found, meets the limits, and is gone afterwards.

    The limits leave the server and the client seconds to be late by: the two seconds that are measured never fill
    5 s of queue, whatever else the machine does.
    """
    monkeypatch.chdir(tmp_path)
    config.write_text(TWIN.replace("beta0: 6000", "beta0: 60000"))
    (tmp_path / "server.py").write_text(SERVER)
    code = vtwin.main(
        [
            *(
                "tune",
                "--config",
                str(config),
                "--slo",
                "ttft_p95=5s,tpot_p99=400ms",
                "--json",
                "--seeds",
                "1",
            ),
            *("--prompt-tokens", "50", "--output-tokens", "10", "--num-requests", "6000", "--top", "1"),
            *("--max-num-seqs", "16,48", "--max-num-batched-tokens", "512", "--chunked-prefill", "true"),
            *("--serve", f"{sys.executable} server.py {config} {free_port}", "--confirm-duration", "2"),
            *("--url", f"http://127.0.0.1:{free_port}"),
        ]
    )
    told = json.loads(capsys.readouterr().out)
    live = told["best"][0]["live"]
    assert told["best"][0]["flags"] == "--max-num-seqs 48"
    assert (code, live["met"]) == (0, True), live
    assert live["failed_frac"] == 0
    assert live["num_requests"] >= 45
    assert live["values_us"]["tpot_p99"] == pytest.approx(told["best"][0]["values_us"]["tpot_p99"], rel=0.5)
    assert (tmp_path / "vtwin-tune" / "best-1.log").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ["--max-num-seqs", "16", "--max-num-batched-tokens", "512", "--chunked-prefill", "true"],
            "no server but the",
        ),
        (["--serve", "'vllm"], '--serve: got "\'vllm", expected a command line'),
        (["--serve", "vllm serve m", "--url", "here"], "--url: got 'here', expected http://HOST:PORT"),
        (["--rate", "5"], "--rate: cannot be combined with a search for a rate"),
        (["--max-num-seqs", ""], "--set engine.max_num_seqs: got ''"),
    ],
)
def test_a_mistake_is_one_line(
    config: Path, capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    code = vtwin.main(["tune", "--config", str(config), "--slo", "ttft_p99=1s", *options])
    told = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert complaint in told[-1]


def test_a_model_that_leaves_too_little_memory_is_refused_unless_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Llama 3.1 8B in 16 bits on an A10G: vLLM ends with an error, since one full sequence does not fit."""
    (tmp_path / "twin.yaml").write_text(
        "latency: {model: roofline, model_config: meta-llama/Llama-3.1-8B-Instruct}\nhardware: A10G\n"
    )
    arguments = [
        "run",
        "--config",
        str(tmp_path / "twin.yaml"),
        "--rate",
        "1",
        "--num-requests",
        "5",
        "--json",
    ]
    assert vtwin.main(arguments) == 2
    refused = capsys.readouterr().err.strip().splitlines()
    assert "vLLM would refuse to start" in refused[-1]
    assert "--anyway" in refused[-1]
    assert vtwin.main([*arguments, "--anyway"]) == 0
    assert json.loads(capsys.readouterr().out)["num_by_status"] == {"ok": 5}


def test_a_gain_beyond_the_double_is_a_factor() -> None:
    assert _more(0.25) == "+25.0%"
    assert _more(29.34) == "x30.3"
