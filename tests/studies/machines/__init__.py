"""Load and sweeps from two machines' worth: network namespaces, one with a clock of its own, one killed midway."""
