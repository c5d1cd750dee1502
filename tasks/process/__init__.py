"""The process a run is: one at a time on a storage root, its end from outside, and what it says on the way."""
