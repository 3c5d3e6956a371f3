"""Strict reading of YAML and JSON: one parser and one set of scalars for all readers.

``yaml_nodes``: text to nodes that know their line. ``section``: a mapping read key by key (TWIN.yaml, defaults, gate).
``dataclass_yaml``: to and from frozen dataclasses (a trace's header). Workload specifications read plain values by
tables of keys (``traces.workload.spec.fields``) and ask ``yaml_nodes.line_at`` for the line of what is wrong.
"""
