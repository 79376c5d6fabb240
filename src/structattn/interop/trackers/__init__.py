"""Replay of the event log of a run into TensorBoard, MLflow and Weights & Biases.

- ``log_run`` replays a run, and follows it if wanted; ``TRACKERS`` are the trackers by name.
"""

from structattn.interop.trackers.trackers import TRACKERS, log_run

__all__ = ["TRACKERS", "log_run"]
