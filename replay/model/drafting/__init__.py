"""What drafts for a model as its own config.json has it, and how long a draft takes."""
