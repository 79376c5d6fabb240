"""Next-symbol prediction on a formal language, against its exact bound (DuSell & Chiang 2024, section 6)."""
