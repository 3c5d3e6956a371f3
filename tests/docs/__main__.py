"""`make docs`: write the generated pages of docs/reference."""

from __future__ import annotations

import typer

from tests.docs.pages import ROOT
from tests.docs.reference import PAGES

for page, make in PAGES.items():
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(make())
    typer.echo(f"wrote {page.relative_to(ROOT)}", err=True)
