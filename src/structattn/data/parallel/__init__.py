"""Parallel text: pairs of lines, checked, filtered, cut into subwords and numbered.

What prepares it is imported by name: ``structattn.data.parallel.prepare``. What opens it is in ``prepared.py``.
"""
