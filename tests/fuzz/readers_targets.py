"""Readers of files: what others measured, configurations, specifications, prices, limits.

A file is a fault where its reader raises anything but an error of its own, of one line, or where two readers of the
same file disagree. A packed case of several files is one input.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from tests.fuzz import reader_files as made
from tests.fuzz import twin_files
from tests.fuzz.mutate import Files, damaged_files, packed, unpacked
from tests.fuzz.target import Target
from traces.errors import TraceError, VtwinError

_FAST = Path("/dev/shm")  # noqa: S108  folders of their own in it, for speed


def _in_folder(read: Callable[[Path], object]) -> Callable[[bytes], None]:
    """Return a check that writes the packed files into an empty folder and reads them there."""

    def check(data: bytes) -> None:
        with tempfile.TemporaryDirectory(dir=_FAST if _FAST.is_dir() else None) as name:
            folder = Path(name)
            for file, content in unpacked(data).items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(content)
            try:
                read(folder)
            except VtwinError as error:
                said = str(error)
                assert said.isprintable(), f"an error of several lines, or with control characters: {said!r}"
                assert len(said) < 5000, f"an error of {len(said)} characters: {said[:300]!r}"

    return check


def _converting(source: str, name: str, **options: object) -> Callable[[Path], object]:
    """Return a reader that converts a file, and finds that what came out can be written and is a whole trace."""

    def read(folder: Path) -> None:
        from traces import check_trace, write_trace
        from traces.conversion import convert

        trace = convert(source, folder / name if name else folder, **options)  # type: ignore[arg-type]
        write_trace(trace, folder / "out")
        problems = check_trace(folder / "out")
        assert not problems, problems[:2]

    return read


def _trace(stem: str) -> Callable[[Path], object]:
    """Return a reader of a trace: checking and reading it say the same."""

    def read(folder: Path) -> None:
        from traces import check_trace, read_trace
        from traces.trace_summary import summarize_trace

        try:
            problems = check_trace(folder / stem)
        except TraceError:
            problems = None
        try:
            described = summarize_trace(read_trace(folder / stem))
        except TraceError:
            assert problems is None or problems, "check finds nothing, reading refuses"
            raise
        assert problems is not None, "check refuses, reading does not"
        assert described

    return read


def _tools(folder: Path) -> None:
    """What is read can be sent, by both APIs, and said in a header."""
    from observe.kinds.tools import read_tools
    from observe.plan.request_body import BodyShape

    tools = read_tools(folder / "tools.json", choice="auto")
    for each in (tools, replace(tools, choice=tools.tools[0]["function"]["name"])):
        for api in ("chat", "responses"):
            shape = BodyShape(api=api, model="tiny", extra=each.fields)  # type: ignore[arg-type]  # one of the two
            sent = json.loads(shape.body(b"[]", max_tokens=4, model=None, priority=None))
            assert len(sent["tools"]) == len(tools.tools)


def _twin(folder: Path) -> None:
    from replay.twin.config_read import load_config
    from replay.twin.config_write import dump_config

    dump_config(load_config(folder / "twin.yaml"))


def _command(folder: Path) -> None:
    """What is written of a command line is a twin; with a GPU, one that a reader may still refuse."""
    from replay.twin.config_read import load_config
    from replay.twin.start.from_serve import named, start_from_serve, twin_text

    texts = {path.name: path.read_bytes().decode("utf-8", "replace") for path in folder.iterdir()}
    gpu, version, *_ = [*texts.get("asked.txt", "").split("\n"), "", ""]
    start = start_from_serve(texts.get("command.txt", ""))
    text, notes = twin_text(named(start, vllm_version=version or None), gpu=gpu or None)
    assert all(note.isprintable() for note in notes), notes
    (folder / "twin.yaml").write_text(text)
    try:
        load_config(folder / "twin.yaml")
    except VtwinError:
        if not gpu:
            raise AssertionError(text) from None
        raise


def _defaults(folder: Path) -> None:
    from replay.twin.defaults import read_defaults

    read_defaults(folder / "defaults.yaml")


def _gate(folder: Path) -> None:
    from calibrate.gate.gate_file import read_gate

    read_gate(folder / "gate.yaml")


def _baseline(folder: Path) -> None:
    from calibrate.ci.baseline import read_baseline

    read_baseline(folder / "report.json")


def _model(folder: Path) -> None:
    from replay.model import kv_cache_size, read_model_config
    from replay.model.card import card, document
    from replay.model.gpus import find_gpu
    from traces.facts import terminal_lines

    shape, gpu = read_model_config(folder / "config.json"), find_gpu("H100", where="here")
    capacity = kv_cache_size(shape, gpu, tp=8, pp=2)
    terminal_lines(card(shape, gpu, capacity, tp=8, pp=2), width=80)
    json.dumps(document(shape, gpu, capacity, tp=8, pp=2), allow_nan=False)


def _drafter(folder: Path) -> None:
    """Read a file as the drafter of a model by each method: what one refuses may be right for the next."""
    from typing import get_args

    from replay.model import read_model_config
    from replay.model.drafting.draft_times import draft_us
    from replay.model.drafting.read_drafter import HeadMethod, read_drafter
    from replay.model.gpu_memory import draft_bytes
    from replay.model.gpus import find_gpu
    from traces import VtwinError

    of, gpu = read_model_config("meta-llama/Llama-3.1-8B"), find_gpu("H100", where="here")
    for method in get_args(HeadMethod):
        with suppress(VtwinError):
            drafter = read_drafter(folder / "config.json", method=method, of=of)
            found = draft_us(drafter, gpu, num_drafts=3, max_num_seqs=64, tp=2), draft_bytes(drafter, tp=2)
            json.dumps(found, allow_nan=False)


def _specification(folder: Path) -> None:
    from traces.workload.spec.spec_read import load_spec

    load_spec(folder / "spec.yaml")


def _grid(folder: Path) -> None:
    from replay.sweeps.grid import read_grid

    read_grid(folder / "grid.yaml")


def _prices(folder: Path) -> None:
    from replay.model.prices import read_server_prices

    read_server_prices(folder / "prices.yaml")


def _fleet_lengths(folder: Path) -> None:
    from replay.fleet.inputs.fleet_workload import read_workload

    read_workload(folder / "lengths.json")


def _fleet_profile(folder: Path) -> None:
    """A profile that is taken sizes a pool, and has a power at every load."""
    from replay.fleet.inputs.fleet_workload import lengths_of_cdf
    from replay.fleet.inputs.need import Need
    from replay.fleet.inputs.profiles import read_source
    from sim.fleet.sizing import Infeasible, Objective

    lengths = lengths_of_cdf([(1024, 0.7), (4096, 1.0)], output_frac=0.2, num_rows=50)
    profile = read_source(str(folder / "profile.yaml"), lengths, context=4096).profile
    for active in (1e-9, 1.0, 1e6):
        assert math.isfinite(profile.power_w(active))
    profile.active_at_power((profile.idle_w + profile.nominal_w) / 2)
    try:
        found = Need(
            lengths=lengths, rate_per_s=50.0, objective=Objective(ttft_p99_s=2.0), context=4096
        ).size(profile)
    except Infeasible as error:
        raise TraceError(str(error)) from error
    assert math.isfinite(found.ttft_p99_s)


def _fleet_pools(folder: Path) -> None:
    from replay.fleet.inputs.failures import availability_with
    from replay.fleet.inputs.fleet_workload import lengths_of_cdf
    from replay.fleet.inputs.pools_file import assigned, read_pools

    router, specs = read_pools(folder / "pools.yaml")
    lengths = lengths_of_cdf([(1024, 0.7), (4096, 1.0)], output_frac=0.2, num_rows=50)
    for spec in specs:
        assert 0 < availability_with(spec.failures) <= 1
    pools = assigned(specs, router or "length", lengths, labels=None, seed=1)
    assert ((pools >= -1) & (pools < len(specs))).all()


def _fleet_labels(folder: Path) -> None:
    from replay.fleet.inputs.fleet_workload import read_workload
    from replay.fleet.inputs.pools_file import read_labels
    from traces import read_trace

    whole = read_workload(folder / "t").whole
    labels = read_labels(whole, folder / "labels.csv", router="semantic", name="t")
    assert labels is not None
    assert len(labels) <= len(read_trace(folder / "t"))


def _diurnal(folder: Path) -> None:
    from replay.fleet.inputs.fleet_ranges import RATES
    from replay.fleet.plans.reserve import rates_of

    rates = rates_of(str(folder / "day.txt"))
    assert len(rates) == 24
    assert all(RATES[0] <= rate <= RATES[1] for rate in rates)


def _failures(folder: Path) -> None:
    """The option's own text, and a file's."""
    from replay.fleet.inputs.failures import availability_note, availability_with, parse_failures

    given = folder / "option.txt"
    text = given.read_bytes().decode("utf-8", "replace") if given.exists() else str(folder / "failures.yaml")
    classes = parse_failures(text.replace("\0", ""))  # which no argument of a program has
    assert 0.01 <= availability_with(classes) <= 1
    availability_note(classes)


def _sweep_rows(folder: Path) -> None:
    """A row that is taken is one that was kept."""
    from replay.sweeps.grid import read_grid
    from replay.sweeps.sweep_table import digest_of, known_rows

    kept = made.sweep_digests()
    known = known_rows(folder / "table.parquet", read_grid(folder / "grid.yaml").runs)
    for run, row in known.rows.items():
        assert digest_of(row) in kept, f"{run}: a row that nobody wrote"
    said = known.note()
    assert said is None or said.isprintable()


def _predictor_cache(folder: Path) -> None:
    """An answer that is taken is the one that was kept."""
    import numpy as np

    from calibrate.predictor.cache import read_cached

    found = read_cached(folder / "cached.npz")
    if found is not None:
        assert found.report == made.learned().report
        assert np.array_equal(found.time_us, made.learned().time_us)


def _engine_log(folder: Path) -> None:
    from traces.steps import parse_engine_log

    parse_engine_log((folder / "server.log").read_bytes().decode("utf-8", "replace").splitlines())


def _logged_steps(folder: Path) -> None:
    """Steps that are read are numbers, whatever form they came in."""
    import numpy as np

    from traces.steps import read_logged_steps

    for file in sorted(folder.iterdir()):
        found = read_logged_steps(file)
        assert len(found.prefill_tokens) == len(found) > 0
        assert np.isfinite(found.duration_us).all()


def _steps(folder: Path) -> None:
    from calibrate.compare.engine_steps import read_steps

    read_steps(folder / "t.steps.csv")


def _step_tables(folder: Path) -> None:
    from replay.twin.profiled_table import model_of, read_step_tables
    from sim.config import InvalidConfig

    try:
        model_of(read_step_tables(folder / "table.json"))
    except InvalidConfig as error:
        raise TraceError(str(error)) from error


def _vidur_profiles(folder: Path) -> None:
    from calibrate.predictor.measured import ProfileError
    from calibrate.predictor.profiles.sources import read_profiles

    try:
        read_profiles([folder], made.wanted_profile())
    except ProfileError as error:
        raise TraceError(str(error)) from error


def _kernel_tables(folder: Path) -> None:
    """Tables are damaged as CSV, and read as Parquet: of damaged Parquet hardly any is a table."""
    import pandas as pd

    for path in folder.glob("*.csv"):
        with suppress(Exception):  # no CSV, or a column of several kinds, which Parquet has not
            pd.read_csv(path).to_parquet(path.with_suffix(".parquet"))
        path.unlink()
    _vidur_profiles(folder)


def _recorded(folder: Path) -> None:
    from traces.importers.recorded import read_recorded

    for name in sorted(path for path in folder.iterdir()):
        read_recorded(name)


def _texts(folder: Path) -> None:
    """A text that is taken can be sent: it has words, and they are text."""
    from observe.texts.data_set import read_texts

    for path in sorted(folder.iterdir()):
        for text in read_texts(path)[0]:
            assert text.messages
            assert all(message.content.strip() for message in text.messages), text
            json.dumps(
                [(message.role, message.content) for message in text.messages], ensure_ascii=False
            ).encode()
            assert text.output_tokens is None or text.output_tokens > 0


def _beside(folder: Path) -> None:
    """What is read beside a trace can be drawn."""
    from observe.measured.beside_the_load import read_beside

    found = read_beside(folder / "t")
    assert len(found.probe_sent_us) == len(found.probe_latency_us)
    found.pictures(2e6)


READERS: dict[str, tuple[Callable[[], list[Files]], Callable[[Path], object]]] = {
    "vllm-bench": (made.vllm_bench, _converting("vllm-bench", "result.json")),
    "aiperf": (made.aiperf, _converting("aiperf", "profile_export.jsonl")),
    "guidellm": (made.guidellm, _converting("guidellm", "benchmarks.json")),
    "guidellm-yaml": (made.guidellm_yaml, _converting("guidellm", "benchmarks.yaml")),
    "otel": (made.otel, _converting("otel", "spans.json")),
    "otel-protobuf": (made.otel_protobuf, _converting("otel", "spans.json")),
    "weka": (made.weka, _converting("weka", "session.json")),
    "tracev2-sessions": (made.trace_sessions, _trace("t")),
    "llmservingsim": (made.llmservingsim, _converting("llmservingsim", "")),
    "servegen": (made.servegen, _converting("servegen", "")),
    "mooncake": (made.mooncake, _converting("mooncake", "m.jsonl")),
    "vidur": (made.vidur, _converting("vidur", "v.csv")),
    "vidur-metrics": (made.vidur_metrics, _converting("vidur", "request_metrics.csv")),
    "csv": (made.csv, _converting("csv", "c.csv", columns="arrival=t:s,input=i,output=o")),
    "azure": (made.azure, _converting("azure", "a.csv")),
    "burstgpt": (made.burstgpt, _converting("burstgpt", "b.csv")),
    "burstgpt-sessions": (made.burstgpt_sessions, _converting("burstgpt", "b.csv")),
    "azure-copies": (made.azure_copies, _converting("azure", "a.csv")),
    "bailian": (made.bailian, _converting("bailian", "q.jsonl")),
    "llmservingsim-workload": (made.llmservingsim_workload, _converting("llmservingsim", "w.jsonl")),
    "genai-perf": (made.genai_perf_export, _converting("genai-perf", "p.json")),
    "inference-perf": (made.lifecycle_metrics, _converting("inference-perf", "p.json")),
    "genai-bench": (made.genai_bench_run, _converting("genai-bench", "p.json")),
    "llmperf": (made.llmperf_responses, _converting("llmperf", "p.json")),
    "blis": (made.blis, _trace("p")),
    "tracev2-csv": (made.trace_csv, _trace("t")),
    "tracev2-parquet": (made.trace_parquet, _trace("t")),
    "by-its-look": (made.by_its_look, _recorded),
    "twin": (twin_files.twins, _twin),
    "from-serve": (twin_files.commands, _command),
    "defaults": (made.defaults, _defaults),
    "gate": (made.gate, _gate),
    "baseline": (made.baseline, _baseline),
    "model-config": (made.model_configs, _model),
    "drafter": (made.drafters, _drafter),
    "workload-spec": (made.specifications, _specification),
    "sweep-grid": (made.grid, _grid),
    "prices": (made.prices, _prices),
    "fleet-lengths": (made.fleet_lengths, _fleet_lengths),
    "fleet-profile": (made.fleet_profile, _fleet_profile),
    "fleet-pools": (made.fleet_pools, _fleet_pools),
    "fleet-labels": (made.fleet_labels, _fleet_labels),
    "fleet-diurnal": (made.diurnal, _diurnal),
    "fleet-failures": (made.failures, _failures),
    "sweep-rows": (made.sweep_rows, _sweep_rows),
    "predictor-cache": (made.predictor_cache, _predictor_cache),
    "engine-log": (made.engine_log, _engine_log),
    "engine-steps": (made.engine_steps, _steps),
    "logged-steps": (made.logged_steps, _logged_steps),
    "step-tables": (made.step_tables, _step_tables),
    "vidur-profiles": (made.vidur_profiles, _vidur_profiles),
    "kernel-tables": (made.kernel_tables, _kernel_tables),
    "texts": (made.texts, _texts),
    "tools": (made.tools, _tools),
    "beside-the-load": (made.beside, _beside),
}
"""By name: whole files of a kind, and what reads them in a folder."""


def _inputs(originals: Callable[[], list[Files]]) -> st.SearchStrategy[bytes]:
    known = cache(originals)

    def drawn(random: Random) -> bytes:
        return packed(damaged_files(random, random.choice(known())))

    return st.randoms(use_true_random=False).map(drawn)


TARGETS = [
    Target(f"reader-{name}", _inputs(originals), _in_folder(read), num_in_suite=12)
    for name, (originals, read) in READERS.items()
]
