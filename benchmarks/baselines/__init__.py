"""What one would use instead, each as its own documentation recommends."""

#: What ``first_step`` prints.
FIRST_STEP_DONE = "first step done"
