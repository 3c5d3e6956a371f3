"""What holds of the page in a browser: a function each, named by the sentence that is true."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlencode

from playwright.sync_api import Browser, Page

from tests.studies.browser.explored import (
    CLASSES,
    HOSTILE,
    LOAD,
    OF_A_MODEL,
    command_document,
    explored,
    opened,
    turn,
    without_cpu_time,
)

LIMIT = ("--slo", "ttft=500ms")
NARROW, WIDE = 420, 1600
TABS = 400
SERIOUS = ("serious", "critical")
BARS_MS = {"one server": 150.0, "16 instances": 300.0}
TURNS = 30
PATIENCE_MS = 20_000


def a_turn_changes_title_table_command_and_link(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD, *LIMIT) as here:
        page = opened(browser, here)
        turn(page, "rate", "40")
        assert "40 requests per second" in page.inner_text("#title")
        assert "--rate 40" in page.inner_text("#command")
        assert page.url.endswith("#rate=40")
        assert "before" in page.inner_text("#variants")
        page.wait_for_selector("#capacity:not(:empty)", timeout=PATIENCE_MS)
        assert "Within the limits" in page.inner_text("#capacity")
        page.wait_for_selector("#variants th:has-text('100,000 requests')", timeout=PATIENCE_MS)
        assert here.strange == [], here.strange


def the_shown_command_prints_the_shown_answer(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD, *LIMIT) as here:
        page = opened(browser, here)
        turn(page, "max_num_seqs", "20")
        turn(page, "num_requests", "700")
        page.click("#document-fold summary")
        page.wait_for_selector("#document:not(:empty)")
        assert without_cpu_time(page.inner_text("#document")) == command_document(
            page.inner_text("#command"), folder
        )


def a_link_reproduces_settings_and_pins(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD, *LIMIT) as here:
        page = opened(browser, here)
        turn(page, "rate", "20")
        page.click("#pin")
        turn(page, "instances", "2")
        there = opened(browser, here, after=page.url.partition("#")[2])
        for which in ("#title", "#command", "#yaml"):
            assert there.text_content(which) == page.text_content(which)
        assert there.input_value("#knob-instances") == "2"
        assert "pinned 1" in there.inner_text("#variants thead")
        assert "20" in there.inner_text("#variants tbody tr:has(th:text-is('rate'))")
        for number in range(5):
            there.click("#pin")
            assert f"{number + 2} of 6" in there.inner_text("#pinned")
        assert there.is_disabled("#pin")
        there.click("button[aria-label='Take off pinned 6']")
        assert not there.is_disabled("#pin")


def a_refused_setting_is_the_headline(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD) as here:
        page = opened(browser, here)
        page.fill("#knob-rate", "-3")
        _until(page, lambda: page.inner_text("#title").startswith("Rate: got '-3', expected a number"))
        assert page.is_visible("#of-before")
        assert "expected a number" in page.inner_text("#knob-rate-fault")
        turn(page, "rate", "5")
        assert "5 requests per second" in page.inner_text("#title")
        assert not page.is_visible("#of-before")
        there = page.context.new_page()
        there.goto(f"{here.link}#rate=-3")
        _until(there, lambda: there.inner_text("#title").startswith("Rate: got '-3'"))
        assert not there.is_visible("#of-before")


def curves_in_several_units_share_one(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD) as here:
        page = opened(browser, here, after="rate=60")
        turn(page, "rate", "5")
        unit, before, now, most, ticks = page.evaluate(
            """async () => {
                const figure = figures.get("latencies").get("ttft");
                figure.again();
                await new Promise((done) => setTimeout(done, 50));  // uPlot has its scales a moment later
                const [x, grey, own] = figure.plot.data;
                const median = (of) => x.find((_, at) => of[at] >= 0.5);
                const [{ max }, ticks] = [figure.plot.scales.x, figure.plot.axes[0].splits()];
                return [figure.picture.x.label, median(grey), median(own), max, ticks.length];
            }"""
        )
        assert unit == "ms"
        table = page.eval_on_selector_all(
            "#variants tr", "all => all.map(each => [...each.cells].map(cell => cell.textContent))"
        )
        told = {row[0]: row[1:] for row in table}["TTFT p50"]
        assert before > 1000 > now
        assert _is_near(_in_ms(told[0]), now), (told, now)
        assert _is_near(_in_ms(told[-1]), before), (told, before)
        assert most > before
        assert ticks > 2


def _in_ms(text: str) -> float:
    value, unit = text.split()
    return float(value.replace(",", "")) * {"ms": 1.0, "s": 1e3}[unit]


def _is_near(value: float, expected: float) -> bool:
    return abs(value - expected) <= 0.1 * expected


def the_keyboard_reaches_every_knob(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD, twin=OF_A_MODEL) as here:
        page = opened(browser, here)
        wanted = set(
            page.eval_on_selector_all(
                "#knobs input, #knobs select, #knobs button",
                "all => all.map(each => each.id || each.ariaLabel)",
            )
        )
        assert {"knob-model", "knob-gpu", "knob-instances", "Rate, slider"} <= wanted
        reached = []
        for _ in range(TABS):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("document.activeElement.id || document.activeElement.ariaLabel || ''")
            )
            if wanted <= set(reached):
                break
        assert wanted <= set(reached), wanted - set(reached)
        page.focus("[aria-label='Rate, slider']")
        before = page.input_value("#knob-rate")
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        assert float(page.input_value("#knob-rate")) > float(before)
        page.focus("#knob-gpu")
        page.keyboard.type("H200")
        _until(page, lambda: "hardware.gpu=H200" in page.inner_text("#command"))


def nothing_keeps_anybody_out(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD, *LIMIT) as here:
        for width, dark in ((WIDE, False), (NARROW, False), (1280, True)):
            page = opened(browser, here, width=width, dark=dark, for_axe=True)
            turn(page, "rate", "25")
            page.click("#pin")
            turn(page, "max_num_seqs", "0" if dark else "60") if not dark else _refused(page)
            page.click("#build-fold summary")
            page.click("#build button[type=submit]")
            page.wait_for_selector("#build-fault:not([hidden])")
            page.eval_on_selector_all(
                "figure details", "all => all.slice(0, 3).forEach(each => { each.open = true; })"
            )
            _is_open_to_all(page, width)
            _build(page)
            _is_open_to_all(page, width)
            page.click("#look")
            _until(page, lambda page=page: "--config built.yaml" in page.inner_text("#command"))  # type: ignore[misc] # bound at once
            _is_open_to_all(page, width)


def _is_open_to_all(page: Page, width: int) -> None:
    page.wait_for_timeout(300)
    found = [each for each in violations(page) if each["impact"] in SERIOUS]
    assert found == [], (width, found)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"got a page {wide} px wide, expected {width}"


def _build(page: Page) -> None:
    """Make a twin in the form that is open."""
    page.fill("[id='key-latency.model_config']", "Qwen/Qwen2.5-7B-Instruct")
    page.fill("[id='key-hardware.gpu']", "H100")
    page.select_option("[id='key-latency.model']", "roofline")
    page.focus("#build button[type=submit]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#look")


def _refused(page: Page) -> None:
    """Turn a knob to what it cannot be, and see the fault beside it."""
    page.fill("#knob-max_num_seqs", "0")
    page.wait_for_selector("#knob-max_num_seqs-fault:not([hidden])")
    assert "expected a whole number from 1" in page.inner_text("#knob-max_num_seqs-fault")
    assert page.get_attribute("#knob-max_num_seqs", "aria-invalid") == "true"


def violations(page: Page) -> list[dict[str, object]]:
    """Return what axe-core finds: rule, impact, and the first element."""
    spec = importlib.util.find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    page.evaluate(Path(spec.origin).with_name("axe.min.js").read_text())
    found = page.evaluate("axe.run()")
    assert found["passes"], "axe-core found nothing to look at"
    return [
        {"id": each["id"], "impact": each["impact"], "html": each["nodes"][0]["html"]}
        for each in found["violations"]
    ]


def a_form_makes_a_twin_and_tells_faults_beside_their_fields(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD) as here:
        page = opened(browser, here)
        page.click("#build-fold summary")
        for key, value in (
            ("latency.model_config", "Qwen/Qwen2.5-7B-Instruct"),
            ("hardware.gpu", "H100"),
            ("engine.max_num_seqs", "-3"),
        ):
            page.fill(f"[id='key-{key}']", value)
        page.select_option("[id='key-latency.model']", "roofline")
        page.click("#build button[type=submit]")
        page.wait_for_selector("[id='key-engine.max_num_seqs-fault']:not([hidden])")
        assert "expected an integer >= 1" in page.inner_text("[id='key-engine.max_num_seqs-fault']")
        page.fill("[id='key-engine.max_num_seqs']", "96")
        page.click("#build button[type=submit]")
        page.wait_for_selector("#built:not([hidden])")
        with page.expect_download() as saved:
            page.click("#built p a")
        text = Path(saved.value.path()).read_text()
        assert "max_num_seqs: 96" in text
        assert text == page.inner_text("#built pre") or text.strip() == page.inner_text("#built pre").strip()
        turn(page, "rate", "14")  # and the page goes on
        assert here.strange == [], here.strange


def a_twin_of_the_form_is_looked_at(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD, *LIMIT) as here:
        page = opened(browser, here)
        turn(page, "rate", "14")
        turn(page, "max_num_seqs", "40")
        page.click("#pin")
        page.click("#build-fold summary")
        _build(page)
        page.focus("#look")
        page.keyboard.press("Enter")
        _until(page, lambda: "--config built.yaml --rate 14" in page.inner_text("#command"))
        assert page.inner_text("#twin") == "built.yaml"
        assert "max-num-seqs" not in page.inner_text("#command")
        assert "engine.max_num_seqs" not in page.inner_text("#command")
        assert page.evaluate("document.activeElement.id") == "answer"
        assert page.evaluate("scrollY") == 0
        assert "in no file yet" in page.inner_text("#to-save")
        assert page.is_visible("#knob-gpu")
        twins = page.inner_text("#variants tbody tr:has(th:text-is('twin'))").split()
        assert twins[:3] == ["twin", "built.yaml", "twin.yaml"], twins
        seats = page.inner_text("#variants tbody tr:has(th:text-is('max_num_seqs'))").split()
        assert seats[2:4] == ["40", "40"], seats
        with page.expect_download() as saved:
            page.click("#to-save a")
        (folder / "built.yaml").write_text(Path(saved.value.path()).read_text())
        turn(page, "tp", "2")
        page.click("#document-fold summary")
        page.wait_for_selector("#document:not(:empty)")
        assert without_cpu_time(page.inner_text("#document")) == command_document(
            page.inner_text("#command"), folder
        )
        there = opened(browser, here, after=page.url.partition("#")[2])
        for which in ("#title", "#command", "#yaml", "#twin"):
            assert there.text_content(which) == page.text_content(which)
        page.click("#reset")
        _until(page, lambda: "--config twin.yaml --rate 12" in page.inner_text("#command"))
        assert page.inner_text("#twin") == "twin.yaml"
        assert page.query_selector("#knob-gpu") is None
        page.go_back()
        _until(page, lambda: "hardware.tp=2" in page.inner_text("#command"))
        assert page.inner_text("#twin") == "built.yaml"
        assert page.inner_text("#pinned").startswith("1 of 6")
        assert here.strange == [], here.strange


def classes_have_their_shares(browser: Browser, folder: Path) -> None:
    (folder / "load.yaml").write_text(CLASSES)
    with explored(folder, "--workload", "load.yaml", *LIMIT) as here:
        page = opened(browser, here)
        turn(page, "share_batch", "1.5")
        assert "--shares batch=1.5" in page.inner_text("#command")
        page.focus("[aria-label='Share of critical, slider']")
        page.keyboard.press("ArrowRight")
        _until(page, lambda: "--shares critical=0.72,batch=1.5" in page.inner_text("#command"))
        assert here.strange == [], here.strange


def intervals_get_narrower(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD) as here:
        page = opened(browser, here)
        page.wait_for_selector("#variants th:has-text('100,000 requests')", timeout=PATIENCE_MS)
        for row in ("p50 within, TTFT", "p99 within, TPOT", "p99 within, E2E"):
            cells = page.eval_on_selector_all(
                f"#variants tbody tr:has(th:text('{row}')) td", "all => all.map(each => each.textContent)"
            )
            assert " to " in cells[1], (row, cells)
            low, high = (float(each.split()[0].replace(",", "")) for each in cells[1].split(" to "))
            assert low <= high
            if " to " in cells[0]:
                few = [float(each.split()[0].replace(",", "")) for each in cells[0].split(" to ")]
                assert high - low <= few[1] - few[0], (row, cells)


def a_stranger_s_text_is_text(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD, name=f"{HOSTILE.replace('/', '')}.yaml") as here:
        page = opened(browser, here)
        assert HOSTILE in page.inner_text("#twin")
        page.goto(f"{here.link}#{urlencode({'rate': HOSTILE, HOSTILE: '1'}, quote_via=quote)}")
        page.reload()
        _until(page, lambda: "<img" in page.inner_text("#title"))
        assert page.query_selector("img") is None
        assert page.title() == "vtwin explore"
        assert here.strange == [], here.strange


def ctrl_c_ends_it_and_the_page_says_so(browser: Browser, folder: Path) -> None:
    with explored(folder, *LOAD) as here:
        page = opened(browser, here)
        assert here.end() == 0
        page.wait_for_selector("#fault:not([hidden])")
        assert "has ended" in page.inner_text("#fault")


def turns_are_answered_in_time(browser: Browser, folder: Path) -> None:
    """Print the times from a turn until it is painted, and hold their p95 against the bars."""
    for what, more in (("one server", ()), ("16 instances", ("--instances", "16"))):
        factor = 16 if more else 1
        load = ("--rate", str(12 * factor), *LOAD[2:])
        with explored(folder, *load, *LIMIT, *more) as here:
            page = opened(browser, here)
            page.wait_for_timeout(3000)
            times: list[float] = []
            for pause_ms in (150, 700):
                page.evaluate("performance.clearMeasures()")
                for number in range(TURNS):
                    page.fill("#knob-rate", f"{(8 + 0.25 * number) * factor:g}")
                    page.wait_for_timeout(pause_ms)
                page.wait_for_timeout(1000)
                times += page.evaluate("performance.getEntriesByName('turn').map(each => each.duration)")
        times.sort()
        assert len(times) > TURNS
        p95 = times[int(0.95 * len(times))]
        print(f"  {what}: {len(times)} turns, median {times[len(times) // 2]:.0f} ms, p95 {p95:.0f} ms")
        busy = os.getloadavg()[0]
        assert p95 <= BARS_MS[what], (
            f"{what}: got p95 {p95:.0f} ms at a load of {busy:.1f}, expected at most {BARS_MS[what]:g}"
        )


def pictures_of(browser: Browser, folder: Path, into: Path) -> None:
    """Write pictures of the page, wide, narrow and dark."""
    with explored(folder, *LOAD, *LIMIT) as here:
        for name, width, dark in (("wide", 1280, False), ("narrow", NARROW, False), ("dark", 1280, True)):
            page = opened(browser, here, width=width, dark=dark)
            turn(page, "rate", "22")
            page.click("#pin")
            turn(page, "max_num_seqs", "48")
            page.wait_for_selector("#variants th:has-text('100,000 requests')", timeout=PATIENCE_MS)
            page.wait_for_timeout(3000)
            page.evaluate(
                "document.activeElement.blur(); scrollTo(0, 0); document.querySelector('#knobs').scrollTo(0, 0)"
            )
            page.screenshot(path=into / f"explore-{name}.png", full_page=True)
            page.screenshot(path=into / f"explore-{name}-top.png")


def _until(page: Page, is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_MS / 1e3
    while not is_so():
        assert time.monotonic() < ends
        page.wait_for_timeout(50)


Check = Callable[[Browser, Path], None]
SHORT: tuple[Check, ...] = (
    a_turn_changes_title_table_command_and_link,
    curves_in_several_units_share_one,
    a_refused_setting_is_the_headline,
    the_keyboard_reaches_every_knob,
    nothing_keeps_anybody_out,
    a_stranger_s_text_is_text,
    a_twin_of_the_form_is_looked_at,
)
"""Those that CI runs."""
ALL: tuple[Check, ...] = (
    *SHORT,
    the_shown_command_prints_the_shown_answer,
    a_link_reproduces_settings_and_pins,
    a_form_makes_a_twin_and_tells_faults_beside_their_fields,
    classes_have_their_shares,
    intervals_get_narrower,
    ctrl_c_ends_it_and_the_page_says_so,
    turns_are_answered_in_time,
)
