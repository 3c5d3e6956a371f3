"""The documentation as a site: ``python -m tests.docs.site`` writes ``build/site`` and fails on a dead link.

The folder ``docs`` is copied with the files that stand beside it (CONTRIBUTING.md, the changelog) and a page for each
package with what its door offers; links into the code, which the site does not have, become plain text. Zensical, which
``requirements-site.lock`` pins, makes the site of it.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
BUILD: Final = ROOT / "build"
PAGES: Final = BUILD / "site-pages"
SITE: Final = BUILD / "site"
BESIDE: Final = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")
PACKAGES: Final = ("observe", "replay", "calibrate", "traces", "sim")
FOLDERS: Final = (("How to", "how-to"), ("Explanation", "explanation"), ("Reference", "reference"))
SHOWN: Final = (".md", ".png", ".svg")
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)

CONFIG: Final[dict[str, Any]] = {
    "site_name": "vtwin",
    "site_description": "A digital twin of vLLM endpoints",
    "docs_dir": PAGES.name,
    "site_dir": SITE.name,
    "use_directory_urls": False,  # the pages can be opened from a folder, too
    "theme": {
        "name": "material",
        "font": False,  # nothing is loaded from elsewhere
        "features": [
            "navigation.tabs",
            "navigation.top",
            "search.highlight",
            "content.code.copy",
            "toc.follow",
        ],
        "palette": [
            {
                "media": "(prefers-color-scheme: light)",
                "scheme": "default",
                "toggle": {"icon": "lucide/sun", "name": "Dark"},
            },
            {
                "media": "(prefers-color-scheme: dark)",
                "scheme": "slate",
                "toggle": {"icon": "lucide/moon", "name": "Light"},
            },
        ],
    },
    "plugins": [
        "search",
        {
            "mkdocstrings": {
                "handlers": {
                    "python": {
                        "paths": [str(ROOT)],
                        "options": {"show_source": False, "show_root_heading": True, "heading_level": 2},
                    }
                }
            }
        },
    ],
    "markdown_extensions": [
        "tables",
        "attr_list",
        "md_in_html",
        {"toc": {"permalink": True}},
        "pymdownx.highlight",
        "pymdownx.superfences",
    ],
}


def main() -> int:
    """Write the site; return 1 where a link of it is dead, and name each."""
    write_pages()
    (BUILD / "mkdocs.yml").write_text(yaml.safe_dump(CONFIG | {"nav": navigation()}, sort_keys=False))
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean"], cwd=BUILD, check=True)
    dead = dead_links(SITE)
    for line in dead:
        print(line)
    print(f"{SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages, {len(dead)} dead links")
    return 1 if dead else 0


def write_pages() -> None:
    """Write what the site is made of into ``build/site-pages``."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in SHOWN:
            target = PAGES / path.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                target.write_text(with_moved_links(path))
            else:
                shutil.copyfile(path, target)
    for name in BESIDE:
        (PAGES / name).write_text(with_moved_links(ROOT / name))
    for name in PACKAGES:
        (PAGES / "reference" / f"python-{name}.md").write_text(page_of_package(name))


def navigation() -> list[dict[str, Any]]:
    """Return the order of the pages: each folder's by title, decisions by number."""
    parts: list[dict[str, Any]] = [{"Questions": "index.md"}, {"Tutorial": "tutorial.md"}]
    parts += [{heading: _sorted_pages(folder)} for heading, folder in FOLDERS]
    parts[-1]["Reference"] += [{f"Python: {name}": f"reference/python-{name}.md"} for name in PACKAGES]
    return [
        *parts,
        {"Evidence": ["validation.md", *_sorted_pages("validation"), "performance.md", "comparison.md"]},
        {"Decisions": ["decisions/README.md", *_sorted_pages("decisions")]},
        {"Project": ["architecture.md", "invariants.md", "security.md", *BESIDE]},
    ]


def _sorted_pages(folder: str) -> list[str]:
    pages = [path for path in (DOCS / folder).glob("*.md") if path.name != "README.md"]
    ordered = sorted(pages, key=lambda path: path.name if folder == "decisions" else _title(path.read_text()))
    return [path.relative_to(DOCS).as_posix() for path in ordered]


def _title(text: str) -> str:
    found = _TITLE.search(text)
    return found[1] if found else ""


def with_moved_links(path: Path) -> str:
    """Return a page whose links out of ``docs`` lead to pages of the site, or are plain text."""
    return _LINK.sub(lambda link: _moved(link, path.parent), path.read_text())


def _moved(link: re.Match[str], folder: Path) -> str:
    """Return a link as the site has it."""
    mark, words, target = link.groups()
    if "://" in target or target.startswith("#") or mark:
        return link[0]
    path, _, anchor = target.partition("#")
    file = (folder / path).resolve()
    behind = f"#{anchor}" if anchor else ""
    if file.is_relative_to(DOCS) and file.suffix in SHOWN:
        return f"[{words}]({_from(folder)}{file.relative_to(DOCS).as_posix()}{behind})"
    if file.parent == ROOT and file.name in BESIDE:
        return f"[{words}]({_from(folder)}{file.name}{behind})"
    return words


def _from(folder: Path) -> str:
    """Return the way from a folder's pages to the first page's folder."""
    return "" if folder == ROOT else "../" * len(folder.relative_to(DOCS).parts)


def page_of_package(name: str) -> str:
    """Return the page of a package: its docstring, then each name of its door with its own."""
    tree = ast.parse((ROOT / name / "__init__.py").read_text())
    lines = [f"# Python: {name}", "", ast.get_docstring(tree) or "", ""]
    for symbol, home in sorted(homes_of(tree)):
        lines += [f"::: {home}.{symbol}", ""]
    return "\n".join(lines)


def homes_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the functions and classes that a door offers and the module that has each, by the door's own table."""
    table = next(
        node.value.args[0]
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "_HOMES"
        and isinstance(node.value, ast.Call)
    )
    for module, names in ast.literal_eval(table).items():
        yield from ((name, module) for name in names.split() if _is_defined(name, module))


def _is_defined(symbol: str, module: str) -> bool:
    """Return whether a module defines a function or a class of this name: constants have no docstring to show."""
    stem = ROOT.joinpath(*module.split("."))
    path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    if not path.is_file():
        return False
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(node, kinds) and node.name == symbol for node in ast.parse(path.read_text()).body)


class _Anchors(HTMLParser):
    """The ids of a page and what its links name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element's id, and where it leads."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif value and ((tag == "a" and name == "href") or (tag in ("img", "script") and name == "src")):
                self.links.add(value)


def dead_links(site: Path) -> list[str]:
    """Return a line for each link of a built site that leads to no file of it, or to no anchor of a page."""
    pages = {path.resolve(): _Anchors(path.read_text()) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                dead.append(f"{path.relative_to(site.resolve())}: {link}: no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                dead.append(f"{path.relative_to(site.resolve())}: {link}: no such place")
    return dead


if __name__ == "__main__":
    sys.exit(main())
