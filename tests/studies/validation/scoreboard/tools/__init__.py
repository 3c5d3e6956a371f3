"""One adapter per tool: ``answers(points)`` returns mean TTFT and TPOT, ms, by a point's id, where it can."""
