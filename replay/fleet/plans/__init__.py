"""Fleets that are computed: sized by formulas, searched by simulations."""
