"""Next-token prediction on text and on formal languages."""
