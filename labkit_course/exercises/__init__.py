"""The exercises, a file a notebook; `check` of `labkit_course.exercise` finds them by name."""
