"""The commands of ``vtwin fleet``, and the options that they share."""
