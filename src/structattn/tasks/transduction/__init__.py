"""String transduction: all output symbols at once, or symbol by symbol (Delétang et al. 2023; Li et al. 2024)."""
