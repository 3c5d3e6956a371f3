"""Which engine flags serve most within the SLO: candidates, the search among them, and a live server's word on it."""
