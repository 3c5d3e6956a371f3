"""`make docs`: write the generated pages of docs/reference, and run the notebooks."""

from __future__ import annotations

import typer

from tests.docs.notebook_cells import notebook_of, notebook_text, sources
from tests.docs.pages import ROOT
from tests.docs.reference import PAGES

for page, make in PAGES.items():
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(make())
    typer.echo(f"wrote {page.relative_to(ROOT)}", err=True)
for source in sources():
    notebook = notebook_of(source)
    notebook.write_text(notebook_text(source))
    typer.echo(f"ran {notebook.relative_to(ROOT)}", err=True)
