"""A package from outside, which adds one of each extension by its entry points."""
