"""What a fit leaves behind: a TWIN.yaml with what it was fitted on, or an entry of defaults.yaml."""
