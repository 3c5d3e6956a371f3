"""Prompts that people wrote, from a file or a data set, sent in place of drawn ones (``observe --texts``)."""
