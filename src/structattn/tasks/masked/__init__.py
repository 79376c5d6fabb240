"""Masked language modeling of text (Devlin et al. 2019; Li et al. 2024, section 5)."""
