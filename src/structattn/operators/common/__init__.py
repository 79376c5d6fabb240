"""Shared by all operators: argument checks, masks, choice of the implementation, registration, compiled kernels."""
