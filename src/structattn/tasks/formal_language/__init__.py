"""Next-symbol prediction on strings of a formal language, measured against its exact lower bound (S000, section 6)."""
