"""Parallel text: pairs of lines, checked, filtered, cut into subwords and numbered."""
