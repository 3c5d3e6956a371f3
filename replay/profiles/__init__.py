"""``vtwin profiles``: fitted twins that travel: what each was fitted on, and whether a question lies inside."""
