"""A static site of the executed notebooks, which works from a file, without a network."""

from labkit.course.site.build import build_site

__all__ = ["build_site"]
