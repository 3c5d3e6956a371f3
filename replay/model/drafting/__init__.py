"""What drafts for a model: its own MTP layers, an EAGLE head or a smaller model; its weights and its time."""
