"""Next-token prediction on text: single sentences, or a stream cut into windows."""
