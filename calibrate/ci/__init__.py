"""The gate as CI runs it: baseline, JUnit, step summary, annotations."""
