"""What a reader of a report sees first: the verdict in a sentence, warnings, and cards of one statistic."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from calibrate import command
from calibrate.calibration_run import calibrate, compare_with_simulated, compare_with_twin
from calibrate.findings import Accuracy, Calibration, NoiseFloor, Options
from calibrate.fit.model_selection import Scores, candidates_of
from calibrate.number_format import METRIC_NAMES, in_one_unit, percent
from calibrate.report import html
from calibrate.report.document import document_of
from calibrate.report.findings_json import metrics_json
from calibrate.report.html import page_of
from calibrate.report.markdown import markdown_of
from calibrate.report.report_tables import metric_facts, reading_of
from calibrate.verdict_text import MOST_WORDS, far_p99_in_file, has_small_errors, parted, verdict_text
from replay.twin.fitted.fitted_range import FittedRange
from tests.calibrate.known_servers import GUESS, SERVER, observed, source, workload
from traces import ClientInfo
from traces.pages import render
from traces.statistics.bootstrap import Estimate


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    low, high = (observed(workload(40, rate=6, seed=seed), noise=0.05, seed=seed) for seed in (1, 2))
    return calibrate([source("low", low)], GUESS, Options(replicates=40), holdout=[source("high", high)])


@pytest.fixture(scope="module")
def warned(fitted: Calibration) -> Calibration:
    assert fitted.fit is not None
    return replace(fitted, fit=replace(fitted.fit, loss=2.84))


def with_error(found: Calibration, mape: float, *, floor: float | None = None) -> Calibration:
    """Return a calibration whose held-out E2E is off by this MAPE, TTFT and TPOT by half; ``floor``: the server."""

    def of(value: float) -> Accuracy:
        errors = found.held_out.errors
        shares = {"e2e_us": 1.0, "ttft_us": 0.5, "tpot_us": 0.5}
        off = {
            name: replace(
                errors[name],
                mape=Estimate(value=share * value),
                rel_error=dict.fromkeys(("mean", "p99"), Estimate(value=0.0)),
            )
            for name, share in shares.items()
        }
        return replace(found.held_out, errors={**errors, **off})

    noise = None if floor is None else NoiseFloor(accuracy=of(floor), couples=(("a", "b"),))
    return replace(found, fitted_on=of(mape), held_out=of(mape), noise=noise)


def in_range(found: Calibration, **spans: tuple[float, float]) -> Calibration:
    assert found.config is not None
    return replace(found, config=replace(found.config, fitted=FittedRange(**spans) if spans else None))


def said(found: Calibration, *, has_warnings: bool = False) -> str:
    return verdict_text(found, has_warnings=has_warnings).replace("\u00a0", " ")


def with_itl(found: Calibration, *, p90: float = 0.0) -> Calibration:
    """Return a calibration in which a request's mean ITL is its TPOT; ``p90``: that of single gaps is off so far."""
    errors = dict(found.holdout)
    itl, tpot = errors["itl_us"], errors["tpot_us"]
    rel_error = {**itl.rel_error, "p90": Estimate(value=p90)}
    errors["itl_us"] = replace(itl, mape=tpot.mape, bias=tpot.bias, rel_error=rel_error)
    return replace(found, held_out=replace(found.held_out, errors=errors))


def client_limited(found: Calibration, place: int = -1) -> Calibration:
    """Return a calibration in which the client limited the run in this place: the last one is held out."""
    traces = list(found.traces)
    source_ = traces[place].source
    trace = source_.trace.with_header(client=ClientInfo(limited=True, reason="late"))
    traces[place] = replace(traces[place], source=replace(source_, trace=trace))
    return replace(found, traces=tuple(traces))


FULL = {"rate_per_s": (2.0, 15.0), "prompt_tokens": (2.0, 540.0)}


def test_the_verdict_says_how_close_closer_than_what_and_where(fitted: Calibration) -> None:
    found = in_range(with_error(fitted, 0.017, floor=0.021), **FULL)
    assert said(found) == (
        "The twin predicts this server within 1.7 % (mean E2E error per request, held out; TTFT 0.85 % and TPOT "
        "0.85 % per request), closer than the server repeats itself (2.1 %). Trust its means up to 15 req/s for "
        "prompts of 2\u2013540 tokens."
    )
    assert said(found, has_warnings=True).endswith("tokens. Read the warnings first.")
    assert "not as close as the server" in said(with_error(fitted, 0.03, floor=0.021))
    assert "), as close as the server" in said(with_error(fitted, 0.02101, floor=0.021))


def test_an_error_in_sample_that_is_larger_stands_beside_the_held_out_one(fitted: Calibration) -> None:
    found = in_range(with_error(fitted, 0.13), **FULL)
    worse = with_error(fitted, 0.22).fitted_on
    assert "In sample it is further off: 22.0 % (mean E2E error per request)." in said(
        replace(found, fitted_on=worse)
    )
    assert "further off" not in said(found)
    assert "further off" not in said(replace(found, fitted_on=with_error(fitted, 0.05).fitted_on))


def test_the_verdict_leaves_out_what_is_not_known(fitted: Calibration) -> None:
    found = in_range(with_error(fitted, 0.017))
    assert said(found) == (
        "The twin predicts this server within 1.7 % (mean E2E error per request, held out; TTFT 0.85 % and TPOT "
        "0.85 % per request)."
    )
    busy = in_range(found, concurrency=(1.0, 32.0))
    assert said(busy).endswith(" Trust its means up to 32 requests in flight.")


@pytest.mark.parametrize(
    ("mape", "floor", "is_trusted"), [(0.2, None, False), (0.2, 0.3, True), (0.2, 0.1, False)]
)
def test_a_twin_that_is_far_off_is_not_to_be_trusted(
    fitted: Calibration, mape: float, floor: float | None, is_trusted: bool
) -> None:
    text = said(in_range(with_error(fitted, mape, floor=floor), **FULL))
    assert (
        "Do not trust it yet: the error exceeds 10 %. It was fitted up to 15 req/s" in text
    ) is not is_trusted
    assert ("Trust its means up to" in text) is is_trusted


@pytest.mark.parametrize(
    ("changed", "expected", "trust"),
    [
        (
            {},
            "within 1.7 % (mean E2E error per request, held out; TTFT 0.85 % and TPOT 0.85 % per request)",
            "Trust its means up to",
        ),
        (
            {"tpot_us": (0.146, 0.0)},
            "within 14.6 % (mean TPOT error per request, held out; E2E 1.7 % and TTFT 0.85 % per request)",
            "Trust its E2E up to 15 req/s for prompts of 2\u2013540 tokens, not its TPOT: the error exceeds 10 %.",
        ),
        (
            {"tpot_us": (0.146, 0.0), "ttft_us": (0.02, -0.33)},
            "within 33.0 % (error of the mean TTFT, held out; E2E 1.7 % and TPOT 14.6 % per request)",
            "not its TTFT and TPOT: the error exceeds 10 %.",
        ),
        (
            {"tpot_us": (0.019, -0.031)},
            "within 3.1 % (error of the mean TPOT, held out; E2E 1.7 % and TTFT 0.85 % per request)",
            "Trust its means up to 15 req/s",
        ),
        (
            {"e2e_us": (0.04, 0.0), "tpot_us": (0.019, -0.031)},
            "within 4.0 % (mean E2E error per request, held out; TTFT 0.85 % per request, TPOT 3.1 % of the mean)",
            "Trust its means up to 15 req/s",
        ),
        (
            {"e2e_us": (0.017, 0.4)},
            "within 40.0 % (error of the mean E2E, held out; TTFT 0.85 % and TPOT 0.85 % per request)",
            "Do not trust it yet: the error exceeds 10 %.",
        ),
    ],
)
def test_the_worst_of_e2e_ttft_and_tpot_decides_what_the_first_line_says(
    fitted: Calibration, changed: dict[str, tuple[float, float]], expected: str, trust: str
) -> None:
    found = in_range(with_error(fitted, 0.017), **FULL)
    errors = dict(found.holdout)
    for name, (mape, mean) in changed.items():
        rel_error = {**errors[name].rel_error, "mean": Estimate(value=mean)}
        errors[name] = replace(errors[name], mape=Estimate(value=mape), rel_error=rel_error)
    text = said(replace(found, held_out=replace(found.held_out, errors=errors)))
    assert f"The twin predicts this server {expected}. " in text
    assert trust in text


@pytest.mark.parametrize(
    ("n", "off", "trust", "in_file"),
    [
        (400, {}, "Trust its means and p99 up to 15 req/s for prompts of 2\u2013540 tokens.", ()),
        (100, {}, "Trust its means up to 15 req/s for prompts of 2\u2013540 tokens.", None),
        (
            400,
            {"tpot_us": 0.27, "ttft_us": -0.28, "e2e_us": 0.09},
            "Trust its means up to 15 req/s for prompts of 2\u2013540 tokens. Do not trust its p99: TTFT is off by "
            "28.0 %, TPOT is off by 27.0 %.",
            ("ttft", "tpot"),
        ),
    ],
)
def test_the_trust_says_whether_it_is_of_means_or_of_p99_too(
    fitted: Calibration, n: int, off: dict[str, float], trust: str, in_file: tuple[str, ...] | None
) -> None:
    found = in_range(with_error(fitted, 0.017), **FULL)
    errors = {
        name: replace(each, n=n, rel_error={**each.rel_error, "p99": Estimate(value=off.get(name, 0.02))})
        for name, each in found.holdout.items()
    }
    found = replace(found, held_out=replace(found.held_out, errors=errors))
    assert said(found).endswith(trust)
    assert far_p99_in_file(found) == in_file


def test_a_verdict_says_which_requests_it_is_of(fitted: Calibration) -> None:
    halves = replace(fitted, traces=tuple(replace(each, role="fitted") for each in fitted.traces))
    assert "held out: the second half of the requests;" in said(halves)
    assert "per request, the twin as configured;" in said(replace(fitted, fit=None))
    unseen = replace(fitted, held_out=replace(fitted.held_out, errors={}))
    assert "per request, in sample;" in said(unseen)


def test_two_traces_are_no_twin_and_a_server(fitted: Calibration) -> None:
    trace = fitted.traces[0].source.trace
    found = compare_with_simulated(source("a", trace), source("b", trace), Options(replicates=2))
    assert (
        said(found) == "b is within 0 % of a (mean E2E error per request; TTFT 0 % and TPOT 0 % per request)."
    )


def test_a_load_that_overloads_the_server_is_no_load_to_trust_the_twin_at(fitted: Calibration) -> None:
    over = replace(
        fitted.traces[0], saturation=replace(fitted.traces[0].saturation, state="saturated"), role="fitted"
    )
    found = in_range(with_error(fitted, 0.01), **FULL)
    text = said(replace(found, traces=(over, *fitted.traces[1:])))
    assert "req/s" not in text
    assert text.endswith("Trust its means for prompts of 2\u2013540 tokens.")


SERVED = "The twin predicts this server within 3.4 % (served output tokens/s, \u22123.4 %, held out)."
LASTING = "TTFT and E2E depend on how long an overloaded run lasts."
CLIENTS = "the client, not the server, set the pace of high"


@pytest.mark.parametrize(
    ("means", "is_limited", "doubt"),
    [
        ({"ttft_us": -0.6, "tpot_us": 0.09, "e2e_us": -0.09}, False, ""),
        ({"tpot_us": 1.39}, False, "the mean TPOT is off by +139 % (held out)"),
        (
            {"tpot_us": 1.39, "e2e_us": 0.29},
            False,
            "the mean TPOT is off by +139 %, E2E by +29.0 % (held out)",
        ),
        ({"e2e_us": -0.29}, True, f"the mean E2E is off by \u221229.0 % (held out); {CLIENTS}"),
        ({}, True, CLIENTS),
    ],
)
def test_runs_that_were_all_overloaded_are_judged_by_what_was_served(
    fitted: Calibration, means: dict[str, float], is_limited: bool, doubt: str
) -> None:
    close = with_error(fitted, 0.01)
    rate = fitted.held_out.rates["output_token_throughput"]
    served = {"output_token_throughput": replace(rate, rel_error=Estimate(value=-0.034))}
    errors = {
        name: replace(each, rel_error={**each.rel_error, "mean": Estimate(value=means.get(name, 0.0))})
        for name, each in close.holdout.items()
    }
    held_out = replace(close.held_out, of_saturated=True, capacity=served, errors=errors)
    found = in_range(replace(close, held_out=held_out), **FULL)
    text = said(client_limited(found) if is_limited else found)
    if doubt:
        assert text == f"Do not trust this twin: {doubt}. {SERVED} {LASTING}"
    else:
        assert text == f"Only throughput was tested: every run was overloaded. {SERVED}"


@pytest.mark.parametrize(
    ("text", "title", "lead"),
    [
        (
            "The twin predicts this server within 7 % (mean TTFT error per request, held out: the second half of the "
            "requests; E2E 1 %, TPOT 1 %). Trust it up to 6.9 req/s. Read the warnings first.",
            "The twin predicts this server within 7 %.",
            "Trust it up to 6.9 req/s.",
        ),
        (
            "The server is 5 % slower than the twin of 2026-11-01: with all steps 5 % longer the twin is as close as a "
            "good one (E2E 1 % per request). As it is, it is off by up to 9 % (mean E2E per request); when it was "
            "fitted, E2E was off by 1 %.",
            "The server is 5 % slower than the twin of 2026-11-01.",
            "",
        ),
        ("No error can be told: no latency is known on both sides.",) * 2 + ("",),
    ],
)
def test_a_page_begins_with_a_short_answer_and_loses_nothing(text: str, title: str, lead: str) -> None:
    first, second, further = parted(text)
    assert (first, second) == (title, lead)
    assert max(len(each.split()) for each in (first, second)) <= MOST_WORDS
    assert all(each in " ".join([first, second, *further]) for each in text.split(". ")[1:])
    assert text.split(". ", maxsplit=1)[0].rstrip(".") in " ".join([first, *further])


def test_verdict_and_warnings_come_first_in_every_form(
    warned: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = verdict_text(warned, has_warnings=True)
    document = document_of(warned, command="x")
    assert document["verdict_text"] == verdict
    assert document["warnings"] == document["cautions"]
    line, *_ = document["warnings"]
    markdown = markdown_of(warned, command="x")
    assert markdown.startswith(f"# vtwin calibration\n\n**{verdict}**\n\n## Warnings\n\n- {line}\n")
    assert "Held out:" in markdown.split("## Warnings")[1]
    page = render(page_of(warned, document=document, command="x"))
    title, lead, _ = parted(verdict)
    assert f'<p class="lead">{lead}</p>' in page
    places = [page.index(f"<h1>{title}</h1>"), page.index("<h2>Warnings</h2>"), page.index('class="lead"')]
    assert places == sorted(places)
    assert page.index("<h2>Warnings</h2>") < page.index('class="headlines"')
    shown = StringIO()
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setattr("sys.stderr", shown)
    command.summarise(warned, tmp_path, is_stdout_free=True)
    lines = shown.getvalue().splitlines()
    assert lines[0] == verdict
    assert lines[1].startswith("warning: poor fit:")


def test_every_card_has_the_same_statistic_and_names_it(fitted: Calibration) -> None:
    own, shared = fitted, with_itl(fitted)  # a request's mean ITL as measured, and as its TPOT
    for found, names in (
        (own, ("ttft_us", "itl_us", "tpot_us", "e2e_us")),
        (shared, ("ttft_us", "tpot_us", "e2e_us")),
    ):
        cards = html._headlines(found, list(html.SHOWN))
        assert [card.label.split(",")[0] for card in cards] == [METRIC_NAMES[name] for name in names]
        assert {card.details[0] for card in cards} == {"mean absolute error per request"}
        assert [card.value for card in cards] == [percent(found.holdout[name].mape.value) for name in names]


@pytest.mark.parametrize(("times", "is_told"), [(1.9, False), (2.1, True), (-2.1, True)])
def test_the_p90_of_itl_stands_where_it_is_off_by_more_than_twice_the_cards_figure(
    fitted: Calibration, times: float, is_told: bool
) -> None:
    figure = fitted.holdout["tpot_us"].mape.value
    assert figure is not None
    found = with_itl(fitted, p90=times * figure)
    (card,) = [each for each in html._headlines(found, list(html.SHOWN)) if each.label.startswith("TPOT")]
    assert any("p90 of single gaps" in line for line in card.details) is is_told


def test_terms_are_explained_where_they_first_stand(fitted: Calibration) -> None:
    markdown = markdown_of(fitted, command="x")
    page = render(page_of(fitted, document=document_of(fitted, command="x"), command="x"))
    for text in (markdown, page):
        for term in (r"rank R: \w", r"KS: \w", r"Wasserstein: \w", r"[Cc]ondition number [\d.e+]+ \(\w"):
            assert re.search(term, text), term
    assert page.index("Wasserstein: ") < page.index(">Wasserstein, ")


def test_a_client_that_was_the_limit_is_among_the_warnings_and_first_of_all_of_what_is_held_out(
    fitted: Calibration,
) -> None:
    found = with_error(fitted, 0.01)
    assert "Read the warnings first." in document_of(client_limited(found, 0), command="x")["verdict_text"]
    text = said(client_limited(found))
    assert text.startswith(f"Do not trust this twin: {CLIENTS}. The twin predicts this server within 1.0 %")
    assert "Trust its" not in text
    assert has_small_errors(client_limited(found, 0))
    assert not has_small_errors(client_limited(found))


def test_the_server_comes_first_in_absolute_numbers_and_the_twins_curve_goes_through_what_was_observed(
    fitted: Calibration,
) -> None:
    page = render(page_of(fitted, document=document_of(fitted, command="x"), command="x"))
    assert page.index('id="server"') < page.index('id="distributions"')
    curve = fitted.rate_curve
    assert curve is not None
    assert curve.trace == "high"
    assert list(curve.observed) == ["high", "low"]
    rates = [each.rate_per_s for each in curve.points]
    assert rates == sorted(rates)
    for seen in curve.observed.values():
        at = curve.points[rates.index(seen.rate_per_s)]
        assert at.latencies_us["e2e"][0] == pytest.approx(seen.latencies_us["e2e"][0], rel=0.15)
    below, above = (
        next(each for each in ends if test(each.rate_per_s))
        for ends, test in (
            (curve.points, lambda rate: rate < 0.3 * curve.capacity_per_s),
            (curve.points[::-1], lambda rate: rate > curve.capacity_per_s),
        )
    )
    assert above.latencies_us["ttft"][0] > 1.5 * below.latencies_us["ttft"][0]
    assert document_of(fitted, command="x")["rate_curve"]["capacity_per_s"] == curve.capacity_per_s


def test_runs_whose_requests_differ_are_not_on_one_curve() -> None:
    short, long = (
        observed(workload(40, rate=4, seed=seed, prompt=(tokens, 0.3)), noise=0.05, seed=seed)
        for seed, tokens in ((1, 200), (2, 900))
    )
    found = compare_with_twin([source("short", short), source("long", long)], GUESS, Options(replicates=40))
    assert found.rate_curve is not None
    assert len(found.rate_curve.observed) == 1
    assert "other lengths" in "".join(found.rate_curve.elsewhere.values())


@pytest.mark.parametrize(
    ("values", "unit", "shown"),
    [
        ([9_530.0, 45_200.0, 2_310_000.0], "ms", ["9.53", "45.2", "2,310"]),
        ([12e6, 80e6], "s", ["12.0", "80.0"]),
        ([120.0, 900.0], "µs", ["120", "900"]),
        ([3.0, 45_200.0], "ms", ["0.00", "45.2"]),
        ([500.0, 2_500_000.0], "ms", ["0.50", "2,500"]),
        ([None, 0.0], "ms", ["\u2013", "0.00"]),
    ],
)
def test_a_column_has_one_unit(values: list[float | None], unit: str, shown: list[str]) -> None:
    assert in_one_unit(values) == (unit, [shown])


def test_a_chosen_model_is_shown_with_the_reason(fitted: Calibration) -> None:
    assert fitted.fit is not None
    one, other = np.array([0.02, -0.02]), np.array([0.029, -0.029])
    scores = {"blackbox": Scores(loss=one, pace=one), "attention": Scores(loss=one, pace=other)}
    near = candidates_of(scores, chosen="attention", hidden=(), is_slowing=False)
    said = markdown_of(replace(fitted, fit=replace(fitted.fit, candidates=near)), command="x")
    assert "Chosen: attention: its held-out E2E is as near as the best one's within 1 %" in said
    best = candidates_of(scores, chosen="blackbox", hidden=("attention",), is_slowing=False)
    said = markdown_of(replace(fitted, fit=replace(fitted.fit, candidates=best)), command="x")
    assert "Chosen: blackbox: its held-out E2E is the nearest." in said
    assert "no slowdown shows" in said


def test_n_beside_errors_per_request_is_that_of_the_requests_behind_them() -> None:
    trace = observed(workload(40, rate=2, seed=1))
    first = trace.column("content_first_time_us").to_numpy(dtype=np.int64, copy=True)
    last = trace.column("last_token_time_us").to_numpy(dtype=np.int64, copy=True)
    last[0] = first[0]  # all its tokens in one event: a TPOT of 0
    at_once = trace.with_columns(last_token_time_us=last, last_chunk_time_us=last)
    found = compare_with_twin([source("x", at_once)], SERVER, Options(replicates=20))
    tpot = found.holdout["tpot_us"]
    assert (tpot.n, tpot.num_ratios) == (40, 39)
    facts = {fact.key: fact.text for fact in metric_facts(found.holdout, {}, "tpot_us")}
    assert facts["n"] == "40 (39)"
    assert "n in brackets: the requests behind MAPE" in reading_of(found)
    assert metrics_json(found.holdout)["tpot_us"]["num_ratios"] == 39


def test_a_calibration_shows_the_report_s_verdict_and_figures_in_a_notebook(fitted: Calibration) -> None:
    page = render(page_of(fitted, document=document_of(fitted, command=""), command=""))
    html = fitted._repr_html_()
    assert re.findall(r"<h1>(.*)</h1>", page) == re.findall(r'<p class="verdict">(.*)</p>', html)
    drawn = re.findall(r"<svg class=\"chart\".*?</svg>", html, flags=re.DOTALL)
    assert drawn
    assert [each for each in drawn if each not in page] == []
    assert "MAPE" in html
    assert repr(fitted).startswith("<Calibration: 40 requests of low, high, ")


def test_a_fit_shows_its_coefficients_in_a_notebook(fitted: Calibration) -> None:
    fit = fitted.fit
    assert fit is not None
    html = fit._repr_html_()
    assert f'<p class="verdict">{fit.model}, fitted to {fit.num_requests:,} requests</p>' in html
    assert [each.name for each in fit.coefficients if f">{each.name}</td>" not in html] == []
    assert "\n" not in repr(fit)
