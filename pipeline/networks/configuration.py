"""Keras's own configuration, which keras.json and the environment can change and no identity covers."""

import keras

from pipeline.errors import SettingsError


def configure_keras() -> None:
    """Give Keras its documented defaults: floatx "float32", epsilon 1e-7 and "channels_last".

    Called wherever a network is built or loaded, so that no file or variable outside the settings shapes a run.

    Raises:
        SettingsError: the number of epochs or steps is limited, as by the environment variables KERAS_MAX_EPOCHS and
            KERAS_MAX_STEPS_PER_EPOCH.
    """
    keras.config.set_floatx("float32")
    keras.config.set_epsilon(1e-7)
    keras.config.set_image_data_format("channels_last")
    limits = {"epochs": keras.config.max_epochs(), "steps_per_epoch": keras.config.max_steps_per_epoch()}
    for name, limit in limits.items():
        if limit is not None:
            raise SettingsError(
                f"keras.config.max_{name}: expected no limit, got {limit}. Unset the environment variable "
                f"KERAS_MAX_{name.upper()}; [Train] epochs sets how long a run trains."
            )
