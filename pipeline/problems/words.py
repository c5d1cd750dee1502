"""Words: what problems say in sentences about settings that are made for another, and about mistakes.

No artefact's identity covers this module: rewording retrains nothing.
"""

A_NETWORK_FOR_IMAGES = "a network for images, as the records are"
A_NETWORK_FOR_TEXT = "a network for text, as the records are"
TAKES_TEXT = " It takes a text. Choose another network or another dataset."
TAKES_IMAGES = " It takes images. Choose another network, such as char_lstm, or another dataset."
NOTHING_TO_AUGMENT = "nothing, as the records are a text"
NO_VIEWS = "none, as the records are a text"


def mistake(label: str, predicted: str, confidence: float) -> str:
    """A wrong answer; ``confidence`` from 0 to 1."""
    return f"{label} taken for {predicted}, {confidence:.3f}"


def not_made_for(command: str, problem: str) -> str:
    """That a command does not take runs of a problem."""
    return (
        f"{command}: expected a run that classifies images, got one of the problem {problem}. The forms it writes take "
        "pixels; model.keras, in the run's folder, takes the tokens of a text in any Keras."
    )


def as_code(text: str) -> str:
    """Text as TensorBoard's Markdown shows it as it is."""
    return "\n".join(f"    {line}" for line in text.split("\n"))


SURPRISING = "most surprising passages"


def written_at(temperature: float) -> str:
    """What a text is that a network wrote."""
    return f"written at temperature {temperature:g}"
