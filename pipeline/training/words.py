"""Words: what training says in sentences about figures that are missing.

No artefact's identity covers this module: rewording retrains nothing.
"""

from collections.abc import Mapping, Sequence

# What several processes have to share.
THE_CHECKPOINT = "the checkpoint they resume from, on one storage root"
THE_DEVICES = "device, number of devices and precision"
NOTHING_TRAINED = "no epoch was left to train, and the step is not compiled"


def too_long(step_seconds: float) -> str:
    """Why a step was not timed alone."""
    return f"a step took {step_seconds:.1f} s, too long to repeat it"


def too_long_compiling(step_seconds: float) -> str:
    """Why a step was not timed alone, where each epoch compiled."""
    return f"a step took {step_seconds:.1f} s with its compilation, too long to repeat it"


def not_in_file(name: str) -> str:
    """Why a layer keeps its own initial weights."""
    return f"no {name} there"


def other_shape(name: str, shape: tuple[int, ...], found: tuple[int, ...]) -> str:
    """The same."""
    return f"{name} has the shape {shape}, there {found}"


def refusal(setting: str, expected: str) -> str:
    """What was expected of a setting of [Train]."""
    return f"[Train] {setting}: expected {expected}."


def several_processes(processes: int) -> str:
    """Why a step was not timed alone."""
    return f"{processes} processes would have to time it together"


def process_gone(number: int, processes: int, hostname: str) -> str:
    """What every process says that is left."""
    return (
        f"[Train] processes: process {number} of {processes}, on {hostname}, is gone, so training has stopped in all "
        "of them. Finished epochs are kept: start all again to resume."
    )


def some_process_gone(processes: int) -> str:
    """The same, where it is not known which."""
    return (
        f"[Train] processes: one of the {processes} processes is gone, so training has stopped in all of them; the log "
        "of that one says why. Finished epochs are kept: start all again to resume."
    )


def processes_missing(missing: list[int], processes: int, seconds: float, present: list) -> str:
    """Who did not come."""
    who = ", ".join(map(str, missing))
    came = ", ".join(f"{one['process_id']} on {one['hostname']}" for one in present)
    return (
        f"[Train] processes: {processes} are to train together, and after {seconds:.0f} s missing: {who} (there: "
        f"{came}). Start the same command on its host with --Train-process-id {missing[0]}, or allow more time with "
        "--Train-join-timeout-seconds."
    )


def no_coordinator(address: str, seconds: float) -> str:
    """Process 0 did not come."""
    return (
        f"[Train] coordinator_address: process 0 was not at {address} within {seconds:.0f} s. Start the same command "
        "there with --Train-process-id 0, or correct the address with --Train-coordinator-address."
    )


def no_address(address: str, reason: str | None) -> str:
    """Process 0 cannot listen."""
    return (
        f"[Train] coordinator_address: process 0 cannot listen at {address} ({reason}). It has to be an address of "
        "this host with a free port, and the next two free too."
    )


def reaches_this_host_only(host: str, where: str) -> str:
    """A name that /etc/hosts gives a loopback address."""
    return (
        f"[Train] coordinator_address: {host} is {where} on this host, where no other reaches it. Name its address "
        "in the network, if there are processes on others."
    )


def not_expected(number: object, processes: int) -> str:
    """A process that is there already, or that is none of them."""
    return (
        f"[Train] process_id: {number!r} is there already, or is none of the {processes} processes. Give each its own, "
        f"from 0 to {processes - 1}."
    )


def another_run(number: int, hostname: str) -> str:
    """A process that was started with something else."""
    return (
        f"[Train] processes: process {number}, on {hostname}, was started with other settings, other code or other "
        "records. Start all with the same command, from the same version, on one storage root."
    )


def with_test_time_augmentation(accuracies: Mapping[str, float]) -> str:
    """Accuracies by the prefix of a split's figures."""
    splits = {"val": "test", "validation": "validation"}
    figures = ", ".join(f"{splits[prefix]} accuracy {accuracy:.4f}" for prefix, accuracy in accuracies.items())
    return f"with test-time augmentation: {figures}"


def differs(what: str, values: list[object]) -> str:
    """Processes that cannot train together."""
    found = "; ".join(f"process {number}: {value}" for number, value in enumerate(values))
    return f"[Train] processes: they have to share {what}. {found}."


def elsewhere(number: int, what: str, there: object) -> str:
    """A process that does something else."""
    return f"[Train] processes: process {number} is at {there!r}, this one at {what!r}; the log of that one says why."


def numbered_labels(names: Sequence[str], counts: Sequence[int], most: int) -> str:
    """Which label has which number, and of how many examples of train it is."""
    shown = [f"{at} {name} ({count:,})" for at, (name, count) in enumerate(zip(names, counts, strict=True))]
    more = f", and {len(shown) - most:,} more" if len(shown) > most else ""
    return f"labels, with their examples in train: {', '.join(shown[:most])}{more}"


def differences(differing: Mapping[str, tuple[object, object]]) -> str:
    """What a checkpoint was made with, and this process has not."""
    return "; ".join(f"{name} was {before!r}, is {now!r}" for name, (before, now) in differing.items())
