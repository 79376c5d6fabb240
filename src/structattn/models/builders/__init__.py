"""Build models from settings."""
