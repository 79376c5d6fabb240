"""SyntaxGym: suites of sentences whose regions a model should find more or less surprising (Gauthier et al. 2020)."""
