"""Test suites of targeted examples, such as contrastive pairs."""
