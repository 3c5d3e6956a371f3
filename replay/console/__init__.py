"""What all commands of this package share: progress, an engine that is compiled, twins of options."""
