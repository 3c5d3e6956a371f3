"""What ``vtwin validate`` and ``vtwin demo`` run: pure data, no files, no clock."""
