"""The command line: one short file for each command. What a command needs is imported in its body, so help is fast."""
