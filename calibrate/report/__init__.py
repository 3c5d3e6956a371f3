"""The report: report.json, report.md, report.html and the terminal's tables."""
