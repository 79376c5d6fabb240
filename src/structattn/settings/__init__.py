"""The settings of a run: the single source for YAML, Python and JSON Schema."""
