"""A run on disk: its folder, checkpoints, state, event log and run card."""
