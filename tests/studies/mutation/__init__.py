"""Single changes to the product, and whether a test of their room fails: ``make mutants``."""
