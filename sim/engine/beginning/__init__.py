"""What an engine begins with for its features: their first arrays, and the settings that follow from the config."""
