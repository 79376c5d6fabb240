"""The command-line interface, one module per command. Commands import in their bodies, so that help is fast."""
