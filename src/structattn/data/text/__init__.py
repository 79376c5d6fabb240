"""Read plain text strictly and prepare it for language modeling."""
