"""The commands beside the pipeline, each a module that ``make`` runs."""
