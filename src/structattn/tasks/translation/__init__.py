"""Translation: one sequence read whole, another predicted token by token."""
