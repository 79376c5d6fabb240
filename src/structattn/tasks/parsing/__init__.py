"""Treebanks: constituency trees, their bracketed and linearized forms, and the brackets that are scored."""
