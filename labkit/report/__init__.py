"""The page that answers the question: one offline HTML file from any set of runs."""

from labkit.report.page import write_report

__all__ = ["write_report"]
