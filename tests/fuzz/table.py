"""The table "faults tried and survived" of docs/validation/faults.md, made from the tests' own lists."""

from __future__ import annotations

import json

from replay.twin.config_keys import all_keys
from tests.docs.pages import ROOT
from tests.fuzz.run import FOLDER, all_targets, corpus_of
from tests.fuzz.twin_targets import NUMERIC, VALUES
from tests.observe import test_ways_of_serving
from tests.observe.kinds.test_pooled import NO_ANSWERS
from tests.observe.raw_server import SENDERS, loop_factories
from tests.observe.response.test_untrue_answers import UNTRUE
from tests.observe.senders.test_hostile_server import MODES
from tests.observe.senders.test_tls import FAULTS as TLS
from tests.observe.test_secrets import PLACES
from tests.replay.sweeps.test_sweep import DAMAGES
from tests.test_hostile_text import CALLS
from tests.test_option_ranges import BASES, ENDS, REFUSED, app, commands_under, kind_of, numeric_options

PAGE = ROOT / "docs" / "validation" / "faults.md"
BEGIN, END = "<!-- Begin of faults: made by `make docs` -->", "<!-- End of faults -->"
FILES_BEGIN, FILES_END = "<!-- Begin of files: made by `make docs` -->", "<!-- End of files -->"
RESULTS, SURVEY = FOLDER / "results.json", FOLDER / "survey.json"


def page() -> str:
    """Return the page with the table as it is now."""
    text = PAGE.read_text()
    for begin, end, made in ((BEGIN, END, tables()), (FILES_BEGIN, FILES_END, survey_table())):
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{made}\n{end}{rest.partition(end)[2]}"
    return text


def survey_table() -> str:
    """Return what the last ``python -m tests.fuzz.survey --record`` counted, a row per reader."""
    found = json.loads(SURVEY.read_text())
    corpus = {target.name.removeprefix("reader-"): len(corpus_of(target)) for target in all_targets()}
    lines = ["| reader | damaged files | faults | once failed, in the corpus |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {each['files']:,} | {each['faults']} | {corpus[name]} |" for name, each in found.items()
    ]
    sums = [sum(each[key] for each in found.values()) for key in ("files", "faults")]
    return "\n".join([*lines, f"| all | {sums[0]:,} | {sums[1]} | |"]) + "\n"


def by_seam() -> list[str]:
    """Return the table of what stands beside one server: clusters, fleets, sweeps, pages; tried, and all survived."""
    fleets = [name for name in BASES if name.startswith("fleet")]
    keys = [key for key in all_keys() if key.kind in NUMERIC and key.path.startswith("cluster")]
    ran = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}

    def inputs(word: str) -> int:
        return sum(number for name, number in ran.items() if name.startswith("reader-") and word in name)

    pages = sum("--report" in line or name.startswith("report") for name, (line, _) in CALLS.items())
    rows = [
        ("numeric keys at the ends of numbers, by the fuzzer", len(keys) * len(VALUES), "", "", ""),
        ("options at the ends of numbers", "", ends_of(fleets), ends_of(["sweep"]), ""),
        ("figures that cannot be", "", sum(map(len, REFUSED.values())), "", ""),
        ("damaged files, by the fuzzer", "", f"{inputs('fleet'):,}", f"{inputs('sweep'):,}", ""),
        ("a kept row that is damaged or altered", "", "", len(DAMAGES), ""),
        ("names with markup, line ends and escape sequences", *(calls_with(word) for word in SEAMS), pages),
        ("the same call again: the same bytes", *(calls_with(word) for word in SEAMS), pages),
    ]
    lines = ["| tried, and survived | clusters | fleets | sweeps | pages |", "|---|---:|---:|---:|---:|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


SEAMS = ("cluster", "fleet", "sweep")


def calls_with(word: str) -> int:
    """Return how many of the calls with hostile names are of a cluster, a fleet or a sweep."""
    return sum(word in name for name in CALLS)


def ends_of(names: list[str]) -> int:
    """Return how many values the options of these commands are tried with."""
    commands = dict(commands_under(app()))
    return sum(len(ENDS[kind_of(option)]) for name in names for option in numeric_options(commands[name]))


def ways_of_serving() -> list[str]:
    """Return what is tried of servers that answer in their own way, by the names of the tests."""
    names = [name for name in vars(test_ways_of_serving) if name.startswith("test_")]
    return [name.removeprefix("test_").replace("_", " ") for name in names]


def tables() -> str:
    """Return both tables: modes by name, and what the fuzz targets have run."""
    ways = len(SENDERS) * len(loop_factories())
    groups = [
        (
            "a server that breaks HTTP",
            MODES,
            f"each on {ways} ways: {len(SENDERS)} senders, both event loops",
        ),
        ("a value that cannot be", UNTRUE, "one run of all of them, a good answer between any two"),
        ("a place where a secret is given", PLACES, "the server repeats all that it was sent"),
        ("TLS that must not be taken, or breaks", TLS, "a server with a certificate made for the test"),
        (
            "a server or a proxy that answers in another way",
            ways_of_serving(),
            "what is not measured is empty and told",
        ),
        (
            "what is no embedding, score or response",
            list(NO_ANSWERS),
            "the request between two that are answered",
        ),
    ]
    lines = ["| faults | tried | survived | how |", "|---|---|---|---|"]
    lines += [f"| {name} | {len(modes)} | {len(modes)} | {how} |" for name, modes, how in groups]
    lines += ["", *(f"- {name}: {', '.join(modes)}." for name, modes, _ in groups), "", *by_seam(), ""]
    ran = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    lines += ["| fuzz target | inputs run | once failed, in the corpus | fail now |", "|---|---|---|---|"]
    for target in all_targets():
        if target.name in ran:
            lines.append(f"| `{target.name}` | {ran[target.name]:,} | {len(corpus_of(target))} | 0 |")
    return "\n".join(lines) + "\n"
