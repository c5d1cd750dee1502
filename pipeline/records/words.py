"""Words: what the records say in sentences; no artefact's identity covers this module, rewording rebuilds nothing."""


def unknown_characters(characters: str) -> str:
    """A text holds what its vocabulary does not."""
    return f"characters that the vocabulary does not have: {', '.join(map(ascii, characters))}"
