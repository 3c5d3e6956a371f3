"""``make browser``: the page of ``vtwin explore`` in a real Chromium, by Playwright."""
