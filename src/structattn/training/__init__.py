"""The training loop: runs any task, and survives being stopped at any moment."""
