"""Engines that run the jobs of a sweep: local processes, Ray, or SLURM."""
