"""Scores and records in; tables, plots and pages out. Reads only run folders, computes no model."""

from structattn.reporting.page import write_report

__all__ = ["write_report"]
