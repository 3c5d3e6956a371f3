"""What the documentation's site is made of: every page has its place, links lead to it, dead ones are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.docs.site import BESIDE, DOCS, PACKAGES, dead_links, navigation, page_of_package, with_moved_links
from tests.test_imports import ROOT


def pages_in(part: object) -> Iterator[str]:
    """Yield the pages below a part of the navigation."""
    if isinstance(part, str):
        yield part
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from pages_in(each)


def test_every_page_has_one_place() -> None:
    placed = sorted(pages_in(navigation()))
    there = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert placed == sorted([*there, *BESIDE, *(f"reference/python-{name}.md" for name in PACKAGES)])


def test_links_within_the_site_lead_to_its_pages() -> None:
    assert "](how-to/observe-an-endpoint.md)" in with_moved_links(DOCS / "index.md")
    assert "](CONTRIBUTING.md)" in with_moved_links(DOCS / "index.md")
    assert "](architecture.md)" in with_moved_links(ROOT / "CONTRIBUTING.md")
    assert "](docs/" not in with_moved_links(ROOT / "CHANGELOG.md")


def test_links_into_the_code_are_plain_text() -> None:
    text = with_moved_links(DOCS / "explanation" / "latency-models.md")
    assert ".py)" not in text
    assert "../../replay" not in text


def test_a_package_s_page_has_what_its_door_offers() -> None:
    page = page_of_package("traces")
    assert page.startswith("# Python: traces\n")
    assert "::: traces.trace.Trace\n" in page
    assert "::: traces.files.read.read_trace\n" in page


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="x"></h1><a href="b.html#y">1</a><a href="#x">2</a><img src="c.png">'
    )
    (tmp_path / "b.html").write_text(
        '<a href="a.html#z">1</a><a href="https://example.org/none">2</a><a href="d/">3</a>'
    )
    assert sorted(dead_links(tmp_path)) == [
        "a.html: b.html#y: no such place",
        "a.html: c.png: no such file",
        "b.html: a.html#z: no such place",
        "b.html: d/: no such file",
    ]
