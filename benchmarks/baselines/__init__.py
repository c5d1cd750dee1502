"""What one would use instead, each as its own documentation recommends."""
