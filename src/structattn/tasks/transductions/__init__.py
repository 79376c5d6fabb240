"""String transductions: the Chomsky-hierarchy suite (Delétang et al. 2023), and formal languages."""
