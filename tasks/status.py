"""``make status``: each stage with its state and, where it is not fresh, why. Reads manifests and changes nothing."""

import json

from tasks import command


def main(argv: list[str]) -> int:
    """Print the state of every stage."""
    parser = command.parser("status", "Each stage: fresh, stale, missing or damaged, and why.")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    arguments, overrides = parser.parse_known_args(argv)
    with command.stages_of(overrides) as stages:
        conditions = {name: stage.condition() for name, stage in command.by_name(stages).items()}
    if arguments.json:
        print(json.dumps({name: {"state": c.state, "reasons": c.reasons} for name, c in conditions.items()}, indent=1))
    else:
        width = max(map(len, conditions)) + 1
        for name, condition in conditions.items():
            print(f"{name:{width}} {condition.state:8} {'; '.join(condition.reasons)}".rstrip())
    return 0


if __name__ == "__main__":
    command.run(main)
