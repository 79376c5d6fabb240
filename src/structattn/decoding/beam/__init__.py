"""Beam search: settings and presets, the state of the beam, and the search itself."""
