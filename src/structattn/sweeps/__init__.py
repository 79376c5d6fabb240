"""Many small trainings: a grid of trials, run by an engine that survives what dies, and a table of the best."""
