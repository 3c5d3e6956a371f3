"""The documentation is checked: its code blocks run, its links lead somewhere, its reference is current.

How a fenced block is treated, by its language:

- ``console``: every line after ``$ `` is run by bash, in the order of the page, in one empty folder per page;
  what stands below a command must be what it prints on stdout, where ``…`` stands for anything.
- ``python``: run, in the same order and folder, each block by a Python of its own; one that begins with
  ``# NAME.py`` is written to that file instead.
- ``yaml``: parsed; one that begins with ``# NAME.yaml`` is also written to that file, for later blocks.
- ``sh``: for the reader's own endpoint or machine, so it is not run; every command and option of vtwin in it
  must exist, and every make target.
- ``text``, ``json``, ``csv``: shown, not run.
- ``diff``: the example of a recipe of CONTRIBUTING.md, made in a copy of the project (``recipes``).
"""
