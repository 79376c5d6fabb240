"""Recognition: is a string in a formal language, as in FLaRe (Butoi et al. 2025)?"""
