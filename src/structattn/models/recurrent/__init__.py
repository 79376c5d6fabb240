"""Recurrent language models: LSTMs and Elman networks, alone or with a stack."""
