"""Contrastive pairs: a reference translation and the same with an error; or two sentences, one of them acceptable."""
