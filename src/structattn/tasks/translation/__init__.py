"""Translation: predict a target sentence token by token, given a source sentence."""
