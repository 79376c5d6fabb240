"""Turn a string into another: all at once, or symbol by symbol (Delétang et al. 2023; Li et al. 2024, section 4)."""
