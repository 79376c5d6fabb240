"""Fast forms of several modules at once. Models never import them; see ``structattn.fast.decoder``."""
