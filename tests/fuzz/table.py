"""The table "faults tried and survived" of docs/validation.md, made from the tests' own lists."""

from __future__ import annotations

import json

from tests.docs.pages import ROOT
from tests.fuzz.run import FOLDER, all_targets, corpus_of
from tests.observe.raw_server import SENDERS, loop_factories
from tests.observe.test_hostile_server import MODES
from tests.observe.test_secrets import PLACES
from tests.observe.test_untrue_answers import UNTRUE

PAGE = ROOT / "docs" / "validation.md"
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
    ]
    lines = ["| faults | tried | survived | how |", "|---|---|---|---|"]
    lines += [f"| {name} | {len(modes)} | {len(modes)} | {how} |" for name, modes, how in groups]
    lines += ["", *(f"- {name}: {', '.join(modes)}." for name, modes, _ in groups), ""]
    ran = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    lines += ["| fuzz target | inputs run | once failed, in the corpus | fail now |", "|---|---|---|---|"]
    for target in all_targets():
        if target.name in ran:
            lines.append(f"| `{target.name}` | {ran[target.name]:,} | {len(corpus_of(target))} | 0 |")
    return "\n".join(lines) + "\n"
