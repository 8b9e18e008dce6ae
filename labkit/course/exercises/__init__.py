"""The exercises, a file a notebook; `check` of `labkit.course.exercise` finds them by name."""
