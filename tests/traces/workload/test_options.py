"""The options that three commands share: one table, no contradiction passed over, one line for each."""

import math
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from traces.errors import ConfigError
from traces.strict.option_table import with_option_tables
from traces.units import parse_seconds
from traces.workload import WorkloadOptions, check_options, workload_from_options
from traces.workload.contradictions import BURSTINESS_RANGE, check_output
from traces.workload.lengths import Gaussian, Separate, Uniform
from traces.workload.model import CV_RANGE, Arrival, OpenLoop, UserLoop
from traces.workload.options import flag
from traces.workload.resolve import clipping_notes

BLIS_SAMPLE = Path(__file__).parent / "data" / "workload_v2.yaml"


def options(**given: object) -> WorkloadOptions:
    return WorkloadOptions(**given)  # type: ignore[arg-type]


def refusal(**given: object) -> str:
    with pytest.raises(ConfigError) as caught:
        workload_from_options(options(**given))
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "workload: got none, expected one of --workload SPEC.yaml, --preset NAME --rate R, --rate R"),
        ({"preset": "chatbot"}, "--preset chatbot: needs a load: --rate R or --concurrency N"),
        (
            {"preset": "chatbot", "workload": Path("w.yaml")},
            "--workload: cannot be combined with --preset",
        ),
        (
            {"trace": Path("t"), "workload": Path("w.yaml")},
            "--workload: cannot be combined with --trace",
        ),
        (
            {"rate": 1.0, "concurrency": 2},
            "--rate: cannot be combined with --concurrency: with --concurrency answers set the pace",
        ),
        ({"concurrency": 2, "arrival": "constant"}, "--arrival: cannot be combined with --concurrency"),
        ({"concurrency": 2, "burstiness": 2.0}, "--burstiness: cannot be combined with --concurrency"),
        (
            {"concurrency": 2, "duration": 5.0},
            "--duration: cannot be combined with --concurrency: answers set the pace, "
            "and --num-requests the end",
        ),
        ({"rate": 1.0, "think_time": 0.5}, "--think-time: needs --concurrency"),
        (
            {"trace": Path("t"), "rate": 1.0},
            "--rate: cannot be combined with --trace: the trace has times",
        ),
        (
            {"trace": Path("t"), "output_tokens_min": 5},
            "--output-tokens-min: cannot be combined with --trace",
        ),
        ({"trace": Path("t"), "prefix_tokens": 5}, "--prefix-tokens: cannot be combined with --trace"),
        ({"workload": Path("w"), "prompt_tokens": 5}, "--prompt-tokens: cannot be combined with --workload"),
        ({"workload": Path("w"), "concurrency": 5}, "--concurrency: cannot be combined with --workload"),
        ({"rate": 0.0}, "--rate: got 0, expected a number > 0"),
        ({"rate": math.nan}, "--rate: got nan, expected a number > 0"),
        ({"rate": 1.0, "num_requests": 0}, "--num-requests: got 0, expected an integer >= 1"),
        ({"rate": 1.0, "duration": 0.0}, "--duration: got 0, expected a number > 0"),
        ({"rate": 1.0, "duration": math.inf}, "--duration: got inf, expected a time that ends"),
        (
            {"rate": math.inf, "duration": 1.0},
            "--duration: cannot be combined with --rate inf, expected --num-requests",
        ),
        ({"rate": 1.0, "seed": -1}, "--seed: got -1, expected a number >= 0"),
        ({"concurrency": 0}, "--concurrency: got 0, expected an integer >= 1"),
        ({"concurrency": 1, "think_time": math.inf}, "--think-time: got inf, expected a time that ends"),
        ({"rate": 1.0, "prompt_tokens_stdev": -1}, "--prompt-tokens-stdev: got -1, expected a number >= 0"),
        ({"rate": 1.0, "output_tokens_min": 0}, "--output-tokens-min: got 0, expected an integer >= 1"),
        (
            {"rate": 1.0, "prompt_tokens": 9000, "prompt_tokens_stdev": 10},
            "got 9000, expected a mean in [--prompt-tokens-min, --prompt-tokens-max] = [2, 7000]",
        ),
        (
            {"rate": 1.0, "output_tokens_max": 100, "output_tokens_min": 200},
            "--output-tokens-max: got 100, expected >= --output-tokens-min (200)",
        ),
        ({"concurrency": 1, "arrival_scaling": "rate"}, "--arrival-scaling rate: needs --rate"),
        ({"rate": math.inf, "arrival_scaling": "rate"}, "--arrival-scaling rate: needs --rate"),
        ({"rate": 1.0, "rounds": 2, "arrival_scaling": "rate"}, "cannot be combined with --rounds"),
        ({"rate": 1.0, "arrival": "gamma"}, "--arrival gamma: needs --burstiness"),
        ({"rate": 1.0, "arrival": "weibull"}, "--arrival weibull: needs --burstiness"),
        (
            {"rate": 1.0, "arrival": "poisson", "burstiness": 2.0},
            "--burstiness 2: cannot be combined with --arrival poisson",
        ),
        (
            {"rate": 1.0, "arrival": "constant", "burstiness": 1.0},
            "--burstiness 1: cannot be combined with --arrival constant",
        ),
        (
            {"rate": 1.0, "burstiness": 1e-3},
            "--burstiness: got 0.001, expected a number in [0.01, 10000], or inf",
        ),
        ({"rate": 1.0, "burstiness": 0.0}, "--burstiness: got 0, expected a number > 0"),
        (
            {"workload": Path("nowhere.yaml")},
            "file: got nothing at this path, expected a workload specification (nowhere.yaml)",
        ),
    ],
    ids=str,
)
def test_a_contradiction_is_refused_in_the_options_own_words(given: dict[str, object], line: str) -> None:
    assert line in refusal(**given)


def test_the_defaults_are_those_of_the_peers() -> None:
    workload = workload_from_options(options(rate=2.0))
    (client,) = workload.clients
    both = Gaussian(mean=512, std_dev=256, min=2, max=7000)
    assert client.lengths == Separate(prompt=both, output=both)
    assert client.arrival == Arrival(exactly=(100, 50_000_000))
    assert workload.load == OpenLoop(rate_per_s=2.0)
    assert (workload.num_requests, workload.duration_us) == (100, None)


def test_a_duration_takes_the_place_of_the_default_number() -> None:
    workload = workload_from_options(options(rate=2.0, duration=1.5))
    assert (workload.num_requests, workload.duration_us) == (None, 1_500_000)


def test_a_closed_loop_thinks_in_microseconds() -> None:
    workload = workload_from_options(options(concurrency=3, think_time=0.25))
    assert workload.load == UserLoop(concurrency=3, think_time_us=250_000)


@pytest.mark.parametrize(
    ("given", "arrival"),
    [
        ({"burstiness": 4.0}, Arrival(process="gamma", cv=0.5)),
        ({"burstiness": 4.0, "arrival": "weibull"}, Arrival(process="weibull", cv=0.5)),
        ({"burstiness": 1.0}, Arrival(process="poisson")),
        ({"burstiness": math.inf}, Arrival(process="constant", cv=0.0)),
        ({"arrival": "constant"}, Arrival(process="constant", cv=0.0)),
    ],
    ids=str,
)
def test_burstiness_and_arrival_say_the_process(given: dict[str, object], arrival: Arrival) -> None:
    drawn = workload_from_options(options(rate=1.0, arrival_scaling="none", **given))
    assert drawn.clients[0].arrival == arrival


def test_the_range_of_burstiness_is_that_of_the_coefficients_drawn() -> None:
    assert tuple(b**-0.5 for b in BURSTINESS_RANGE) == CV_RANGE[::-1]


def test_a_rate_replaces_the_specifications() -> None:
    workload = workload_from_options(options(workload=BLIS_SAMPLE, rate=7.0))
    assert workload.load == OpenLoop(rate_per_s=7.0)
    assert workload.num_requests == 200


def test_an_extent_replaces_the_specifications() -> None:
    workload = workload_from_options(options(workload=BLIS_SAMPLE, duration=3.0))
    assert (workload.num_requests, workload.duration_us) == (None, 3_000_000)


CLOSED = (
    "clients: [{concurrency: 2, input_distribution: {type: constant, params: {value: 3}}, "
    "output_distribution: {type: constant, params: {value: 3}}}]"
)


@pytest.mark.parametrize("given", [{"rate": 1.0}, {"duration": 1.0}])
def test_a_closed_loop_in_a_specification_takes_neither_rate_nor_duration(
    tmp_path: Path, given: dict[str, object]
) -> None:
    path = tmp_path / "closed.yaml"
    path.write_text(CLOSED)
    assert "expected" in refusal(workload=path, **given)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60), ("1.5", 1.5), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("250us", 2.5e-4), (" 3s ", 3)],
)
def test_a_time_may_bear_a_unit(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5x", "ms", "1 2", "smsm", "--", "5sm"])
def test_a_time_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected seconds"):
        parse_seconds(text)


# a command


def build_app() -> tuple[typer.Typer, list[tuple[WorkloadOptions, str]]]:
    app, calls = typer.Typer(), []

    @app.command()
    @with_option_tables
    def draw(
        stem: Annotated[str, typer.Argument()],
        load: WorkloadOptions,
        output: Annotated[str, typer.Option()] = "x",
    ) -> None:
        """Draw a workload."""
        calls.append((load, stem + output))

    return app, calls


def test_a_command_takes_every_option_by_the_name_of_its_field() -> None:
    app, calls = build_app()
    given = {
        field.name: ["chat" if field.name == "api" else "chatbot" if field.name == "preset" else "3"]
        for field in fields(WorkloadOptions)
    }
    given |= {
        "arrival": ["gamma"],
        "arrival_scaling": ["none"],
        "output_shape": ["normal"],
        "context_growth": ["none"],
    }
    words = [word for name, values in given.items() for word in (flag(name), *values)]
    result = CliRunner().invoke(app, ["stem", *words, "--output", "out"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    ((load, others),) = calls
    assert others == "stemout"
    assert all(getattr(load, name) is not None for name in given)
    assert (load.rate, load.num_requests, load.duration, load.trace) == (3.0, 3, 3.0, Path("3"))
    assert load.api == "chat"


def test_what_is_not_given_is_none_so_that_it_contradicts_nothing() -> None:
    app, calls = build_app()
    assert CliRunner().invoke(app, ["stem", "--rate", "inf"]).exit_code == 0
    assert calls == [(WorkloadOptions(rate=math.inf), "stemx")]
    check_options(calls[0][0])


def test_every_option_is_explained_with_its_default() -> None:
    app, _ = build_app()
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).output.split())
    assert "Draw a workload." in shown
    for field in fields(WorkloadOptions):
        assert flag(field.name) in shown
    assert "Default: 512, or the preset's." in shown
    assert "Default: 100, without --duration." in shown


def test_the_options_help_imports_neither_numpy_nor_pandas() -> None:
    heavy = "[m for m in ('numpy', 'pandas', 'scipy') if m in sys.modules]"
    code = f"import sys, traces.workload.options; print({heavy})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


def test_an_output_is_never_what_the_workload_is_read_from(tmp_path: Path) -> None:
    spec = tmp_path / "mixed.yaml"
    for given, output in (
        ({"workload": spec}, tmp_path / "mixed"),
        ({"workload": spec}, tmp_path / "sub" / ".." / "mixed.parquet"),
        ({"trace": tmp_path / "run.csv"}, tmp_path / "run"),
    ):
        with pytest.raises(ConfigError, match=f"^--output: got {re.escape(str(output))}"):
            check_output(options(**given), output)
    check_output(options(workload=spec), tmp_path / "other")


# ── a mean alone


def lengths_of(**given: object) -> tuple[Gaussian, Gaussian]:
    (client,) = workload_from_options(options(rate=1.0, **given)).clients
    assert isinstance(client.lengths, Separate)
    assert isinstance(client.lengths.prompt, Gaussian)
    assert isinstance(client.lengths.output, Gaussian)
    return client.lengths.prompt, client.lengths.output


@pytest.mark.parametrize("length", [1, 40, 9000])  # 1 and 9000 lie outside the default bounds
@pytest.mark.parametrize("preset", [None, "chatbot"])
def test_a_mean_without_a_standard_deviation_is_every_requests_length(
    length: int, preset: str | None
) -> None:
    prompt, output = lengths_of(output_tokens=length, preset=preset)
    assert (output.mean, output.std_dev) == (length, 0)
    assert output.min <= length <= (output.max or math.inf)
    assert prompt.std_dev > 0  # nothing was said of it
    prompt, output = lengths_of(prompt_tokens=length, preset=preset)
    assert (prompt.mean, prompt.std_dev) == (length, 0)
    assert output.std_dev > 0


def test_a_standard_deviation_beside_the_mean_holds() -> None:
    _, output = lengths_of(output_tokens=40, output_tokens_stdev=8)
    assert (output.mean, output.std_dev) == (40, 8)


def test_many_clipped_lengths_are_warned_of() -> None:
    (note,) = clipping_notes(options(rate=1.0, output_tokens=40, output_tokens_stdev=256))
    # P(draw < 1.5) = Phi((1.5 - 40) / 256) = 0.440; above 7000: none
    assert note.startswith(
        "about 44% of the output lengths are clipped to [2, 7000], so their mean is not 40:"
    )
    assert clipping_notes(options(rate=1.0, output_tokens=40, output_tokens_stdev=20)) == []
    assert clipping_notes(options(rate=1.0)) == []
    assert clipping_notes(options(rate=1.0, output_tokens=40)) == []


def test_synth_warns_of_clipped_lengths(tmp_path: Path) -> None:
    load = [
        "--rate",
        "1",
        "--output-tokens",
        "40",
        "--output-tokens-stdev",
        "256",
        "--output",
        tmp_path / "w",
    ]
    command = [sys.executable, "-m", "vtwin", "trace", "synth", *map(str, load)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "warning: about 44% of the output lengths are clipped" in done.stderr


def test_lengths_are_uniform_around_the_mean_as_vllm_bench_draws_them() -> None:
    asked = options(rate=5, prompt_tokens=1001, output_tokens=3, random_range_ratio=0.2)
    lengths = Separate(prompt=Uniform(min=800, max=1202), output=Uniform(min=2, max=4))  # floor, ceil
    assert workload_from_options(asked).clients[0].lengths == lengths
    shortest = options(rate=5, output_tokens=1, random_range_ratio=0.5)
    assert workload_from_options(shortest).clients[0].lengths.output == Uniform(min=1, max=2)
    assert clipping_notes(asked) == []


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"random_range_ratio": 1.0}, "--random-range-ratio: got 1, expected a share in [0, 1)"),
        ({"random_range_ratio": math.inf}, "--random-range-ratio: got inf, expected a share in [0, 1)"),
        ({"random_range_ratio": 0.1, "output_shape": "lognormal"}, "--output-shape: cannot be combined with"),
        ({"random_range_ratio": 0.1, "prompt_tokens_max": 9}, "--prompt-tokens-max: cannot be combined with"),
    ],
)
def test_a_range_is_a_share_and_has_no_other_bounds(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        check_options(options(rate=5, **given))
