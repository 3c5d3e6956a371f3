"""Step tables that ship: ``measured/`` has them, one file per server; ``measured/PROVENANCE.md`` says what of."""
