"""Languages from files: grammars (.cfg), finite automata (.fsa), regular expressions (.regex)."""
