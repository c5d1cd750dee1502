"""Settings of the pipeline, with one dataclass per section of config.ini. They are validated when they are made."""
