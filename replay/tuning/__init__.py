"""Which engine flags serve most within the SLO: candidates, the search among them, and a check on a live server."""
