"""Stack attention: superposition, nondeterministic and stack pointers."""
