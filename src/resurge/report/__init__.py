"""Plots and HTML from telemetry."""

from resurge.report.page import Table, write_report

__all__ = ["Table", "write_report"]
