"""Formulas of statistics that other packages use module by module: the bootstrap."""
