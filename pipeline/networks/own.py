"""Functions that the settings name as ``module:function``: builders of the pipeline, and user code."""

import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import SettingsError, message
from pipeline.installed import is_local


def load_function(setting: str, name: str) -> Any:
    """Import ``module:function``.

    Raises:
        SettingsError: the module cannot be imported, or has no such name.
    """
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    # User code may raise anything.
    except Exception as error:
        raise refusal(name, f"importing it raised {in_brief(error)}", setting) from error


def call(setting: str, name: str, function: Callable, *arguments: Any) -> Any:
    """The result of a function. SettingsError: it raised an error."""
    try:
        return function(*arguments)
    except SettingsError:
        raise
    # User code may raise anything.
    except Exception as error:
        given = [_shown(argument) for argument in arguments]
        called = getattr(function, "__name__", name)
        raise refusal(name, f"{called}({', '.join(given)}) raised {in_brief(error)}", setting) from error


def refusal(name: str, problem: str, setting: str = "model") -> SettingsError:
    """The error of a function that is not as the setting expects."""
    return SettingsError(f"[Train] {setting}: expected {_signature(setting)}, got {name!r}: {problem}.")


@message
def _signature(setting: str) -> str:
    if setting == "recipe":
        return "recipe(total_steps, scale) → optimizer, or a pipeline.networks.recipes.Recipe"
    return "build(input_shape, num_labels) → keras.Model"


@message
def _shown(argument: object) -> str:
    return f"{argument.dtype} {argument.shape}" if isinstance(argument, np.ndarray) else repr(argument)


@message
def in_brief(error: Exception) -> str:
    """An error in one line, with the last place in user code that it passed."""
    ours, files = Path(__file__).resolve().parents[1], traceback.extract_tb(error.__traceback__)
    places = [
        f"{frame.filename}, line {frame.lineno}"
        for frame, path in ((frame, Path(frame.filename)) for frame in files)
        if path.is_file() and is_local(path) and not path.resolve().is_relative_to(ours)
    ]
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:400].rstrip('.')}"
    return f"{text} ({places[-1]})" if places else text
