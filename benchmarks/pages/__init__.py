"""The pages of measurements in the documentation, one section a file."""
