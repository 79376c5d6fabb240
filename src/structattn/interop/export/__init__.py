"""Export of trained runs to the formats of other libraries."""
