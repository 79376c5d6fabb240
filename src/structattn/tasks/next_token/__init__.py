"""Tasks that predict the next token."""
