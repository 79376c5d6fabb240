"""Analysis: what the layers of a trained run do on examples, written to its run folder as records."""
