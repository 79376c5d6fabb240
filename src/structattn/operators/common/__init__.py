"""What all operators share: shape checks, masks, the choice of an implementation, the compiled module."""
