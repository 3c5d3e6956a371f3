"""A fitted twin keeps the GPU and the model that the fit knew, and simulates what it did without them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import vtwin
from replay import TwinConfig, dump_config, load_config
from replay.model import find_gpu, read_model_config
from replay.model.model_peak import peak_times
from replay.model.shipped_models import shipped_config
from replay.twin.config_read import read_config_text
from replay.twin.fitted.written_server import NOT_WRITTEN, NamedServer, named_server, text_with_server
from sim import EngineConfig, Physics
from tests.calibrate.known_servers import observed, workload
from traces import read_trace, write_trace

MODEL = "meta-llama/Llama-3.1-8B"
GUESS = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
latency: {model: blackbox, coefficients: {alpha0: 9000, alpha1: 1, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}}
"""
FIT = ("--fit", "--latency-model", "blackbox", "--report", "report", "--write-config", "twin.yaml")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recording of a server on an H100 whose header names neither GPU nor size of its cache."""
    monkeypatch.chdir(tmp_path)
    peak = peak_times(read_model_config(MODEL), find_gpu("H100"), tp=1)
    twin = TwinConfig(engine=EngineConfig(max_num_seqs=64), latency=Physics(peak=peak))
    load = workload(60, rate=4, seed=1, prompt=(900, 0.8), output=(60, 0.5))
    write_trace(observed(load, twin), tmp_path / "low")
    return tmp_path


def fitted(*words: str) -> TwinConfig:
    assert vtwin.main(["calibrate", "low", *FIT, *words]) == 0
    return load_config("twin.yaml")


@pytest.mark.usefixtures("here")
def test_the_fit_without_a_configuration_writes_what_every_planner_asks_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    twin = fitted("--gpu", "H100", "--model-config", MODEL)
    assert twin.num_gpus == {"H100": 1}
    assert twin.kv_bytes_per_token == 131_072
    capsys.readouterr()
    words = ("--workload", "low", "--rate", "20", "--slo", "ttft_p99=1s")
    assert vtwin.main(["fleet", "size", "--profile", "twin.yaml", *words, "--no-verify"]) == 0
    told = capsys.readouterr()
    assert "\ncost " in told.out
    assert "\npower, formula " in told.out
    priced = ["--compare", "--prices", "prices.yaml"]
    Path("prices.yaml").write_text("H100: 2.5\n")
    assert vtwin.main(["fleet", "size", "--profile", "twin.yaml", *words, *priced]) == 0
    assert " 2.50 " in capsys.readouterr().out.replace("\n", " ")
    asked = ["capacity", "--config", "twin.yaml", "--like", "low", "--slo", "ttft_p99=1s", "--no-binding"]
    asked += ["--prices", "prices.yaml", "--num-requests", "500", "--seeds", "1"]
    assert vtwin.main(asked) == 0
    assert "requests per unit of currency" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_the_keys_change_no_simulation_and_add_no_note() -> None:
    Path("guess.yaml").write_text(GUESS)
    twin = fitted("--config", "guess.yaml", "--gpu", "H100", "--model-config", MODEL, "--tp", "2")
    text = Path("twin.yaml").read_text()
    without = [
        line
        for line in text.splitlines()
        if not line.startswith(("hardware:", "  gpu:", "  tp:", "  model_config:"))
    ]
    plain = read_config_text("\n".join(without) + "\n", Path("plain.yaml"))
    assert twin.num_gpus == {"H100": 2}
    assert plain.num_gpus == {}
    assert twin == plain
    assert set(twin.notes) <= set(plain.notes)


def test_a_config_json_is_found_from_where_the_twin_is_written(here: Path) -> None:
    shipped = shipped_config(MODEL)
    assert shipped is not None
    (here / "models").mkdir()
    (here / "models" / "own.json").write_text(shipped.read_text())
    Path("guess.yaml").write_text(
        "hardware: {gpu: H100, nccl_launch_us: 5}\nlatency: {model: physics, model_config: models/own.json}\n"
        "engine: {max_num_seqs: 64, max_model_len: 8192}\n"
    )
    twin = fitted("--config", "guess.yaml")
    assert "model_config: " + json.dumps("models/own.json") in Path("twin.yaml").read_text()
    assert twin.kv_bytes_per_token == 131_072
    assert named_server(here / "twin.yaml").hardware == {"gpu": "H100"}


def test_an_open_cache_is_not_sized_by_the_model_that_is_written(here: Path) -> None:
    open_cache = replace(
        TwinConfig(engine=EngineConfig(), latency=load_config(_blackbox(here)).latency), source=None
    )
    server = NamedServer(hardware={"gpu": "H100"}, latency={"model_config": MODEL})
    text = text_with_server(
        dump_config(open_cache), server, path=here / "t.yaml", notes=(), read=read_config_text
    )
    found = read_config_text(text, here / "t.yaml")
    assert found == open_cache
    assert found.num_gpus == {"H100": 1}
    assert NOT_WRITTEN in text


def _blackbox(here: Path) -> Path:
    path = here / "plain.yaml"
    path.write_text(
        "engine: {max_num_seqs: 8}\nlatency: {model: blackbox, coefficients: {alpha0: 1, alpha1: 0, alpha2: 0, "
        "beta0: 5000, beta1: 10, beta2: 20}}\n"
    )
    return path


@pytest.mark.usefixtures("here")
def test_no_more_requests_ran_than_the_fitted_server_has_seats(capsys: pytest.CaptureFixture[str]) -> None:
    Path("guess.yaml").write_text(
        "hardware: {gpu: H100}\nengine: {max_num_seqs: 8, max_model_len: 8192}\n"
        f"latency: {{model: physics, model_config: {MODEL}}}\n"
    )
    load = workload(120, rate=40, seed=1, prompt=(900, 0.8), output=(60, 0.5))
    write_trace(observed(load, load_config("guess.yaml")), Path("low"))
    twin = fitted("--config", "guess.yaml")
    assert twin.fitted is not None
    assert twin.fitted.concurrency is not None
    assert twin.fitted.concurrency[1] == 8
    capsys.readouterr()
    asked = ["run", "--config", "twin.yaml", "--like", "low", "--concurrency", "32", "--num-requests", "200"]
    assert vtwin.main([*asked, "--set", "engine.max_num_seqs=32"]) in (0, 5)
    assert "extrapolated beyond the fit" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_the_file_says_what_it_was_fitted_on(capsys: pytest.CaptureFixture[str]) -> None:
    low = read_trace("low")
    server = low.header.server.learn("/version", version="0.24.0")
    write_trace(replace(low, header=replace(low.header, server=server)), Path("low"))
    twin = fitted("--gpu", "H100", "--model-config", MODEL, "--tp", "2")
    on = twin.fitted_on
    assert on is not None
    assert (on.model, on.gpu, on.num_gpus, on.tp, on.vllm_version) == (MODEL, "H100", 2, 2, "0.24.0")
    assert on.flags["max_num_seqs"] == twin.engine.max_num_seqs
    assert on.noise == {}
    (load,) = on.loads
    assert (load.name, load.role, load.num_requests) == ("low", "half", 60)
    assert load.rate_per_s == pytest.approx(4, rel=0.5)
    assert load.concurrency == pytest.approx(load.rate_per_s * 0.5, rel=0.9)
    assert load.e2e is not None
    assert load.e2e < 0.2
    assert twin.outside_server is None
    assert vtwin.main(["profiles", "check", "twin.yaml", "--gpu", "H200"]) == 1
    assert "GPU H200, fitted on H100" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_a_version_that_nobody_told_is_not_written_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("guess.yaml").write_text(GUESS)
    twin = fitted("--config", "guess.yaml")
    assert twin.fitted_on is not None
    assert twin.fitted_on.vllm_version is None
    told = "note: vllm_version is not known: neither the traces nor the configuration say it. The rules of 0.32.0"
    assert capsys.readouterr().err.count(told) == 1


@pytest.mark.usefixtures("here")
def test_the_version_of_a_trace_s_server_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    low = read_trace("low")
    server = low.header.server.learn("/version", version="0.23.0")
    write_trace(replace(low, header=replace(low.header, server=server)), Path("low"))
    Path("guess.yaml").write_text(GUESS)
    twin = fitted("--config", "guess.yaml")
    assert twin.vllm_version == "0.23.0"
    told = capsys.readouterr().err
    assert "vllm_version is not in the configuration: 0.23.0, as the header of low says of its server" in told
    Path("guess.yaml").write_text(f'vllm_version: "0.32.0"\n{GUESS}')
    twin = fitted("--config", "guess.yaml")
    assert twin.vllm_version == "0.32.0"
    told = capsys.readouterr().err
    assert (
        "vllm_version: the rules of 0.32.0 are taken; the header of low says of its server (/version) 0.23.0"
        in told
    )
