"""One adapter per tool: ``answers(points)`` returns TTFT and TPOT in ms by a point's id, of those that it can answer."""
