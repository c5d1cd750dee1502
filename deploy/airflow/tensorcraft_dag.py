"""TensorCraft as a DAG of Airflow 3: records → train → report. A remote carries the artifacts between the tasks.

Copy it into the folder of DAGs. docs/how-to/schedule.md lists the requirements of a worker. Commands inherit the
environment of the worker, and with it the credentials. The file contains no secret.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, CronTriggerTimetable, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

# Exit codes (docs/reference/exit-codes.md) of failures that a retry may pass, on this worker or another. A task that
# ends with another code fails at once.
WORTH_A_RETRY = {
    3,  # the dataset is unavailable
    5,  # another process builds the same artifact
    6,  # the disk of this worker
    7,  # the device of this worker
    11,  # the remote
    130,  # interrupted
    137,  # killed, for example because memory was exhausted or the worker was removed
    143,
}

# The project has the same path on each worker. By default the storage root is in the folder that Airflow creates for a
# task and removes afterwards, so each task starts with an empty root.
COMMAND = """
root=${{TENSORCRAFT_ROOT:-$PWD/data}}
cd "${{TENSORCRAFT:-/opt/tensorcraft}}" &&
.venv/bin/python -m tasks {stage} --Storage-root "$root" --Storage-remote "$REMOTE" \
--Storage-on-remote-error fail --Train-backend "$BACKEND"
"""


class Stage(BashOperator):
    """Run a stage by its name. A failure that a retry would repeat ends the task."""

    def __init__(self, *, stage: str, **how) -> None:
        super().__init__(
            task_id=stage.lower(),
            bash_command=COMMAND.format(stage=stage),
            # Parameters reach the command as variables, so that nobody can add to the command.
            env={
                "TENSORCRAFT_EXPERIMENT": "{{ params.experiment }}",
                "REMOTE": "{{ params.remote }}",
                "BACKEND": "{{ params.backend }}",
                **how.pop("env", {}),
            },
            append_env=True,
            skip_on_exit_code=set(range(1, 256)) - WORTH_A_RETRY,
            **how,
        )

    def execute(self, context):
        """Run the command. A skip becomes a failure without a retry."""
        try:
            return super().execute(context)
        except AirflowSkipException as ended:
            said = str(ended).removesuffix(" Skipping.")
            raise AirflowFailException(f"{said} A retry would fail too, see docs/reference/exit-codes.md.") from ended


with DAG(
    dag_id="tensorcraft",
    schedule=CronTriggerTimetable("30 2 * * *", timezone="UTC"),
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    # Two concurrent runs would do the same work twice.
    max_active_runs=1,
    default_args={
        "retries": 5,
        "retry_delay": timedelta(minutes=2),
        "retry_exponential_backoff": True,
        "max_retry_delay": timedelta(minutes=30),
    },
    params={
        "experiment": Param("cifar10", type="string", pattern="^[A-Za-z0-9_-]+$"),
        "remote": Param("s3://our-bucket/tensorcraft", type="string", pattern="^(s3|gs|az)://"),
        # "auto" selects JAX on some workers with a GPU and TensorFlow on others, which would train another run.
        "backend": Param("tensorflow", enum=["tensorflow", "jax"]),
    },
):
    records = Stage(stage="Records")
    # Pass queue="gpu" to use the workers of that queue.
    train = Stage(stage="Train")
    # Reports and their history are on no remote, so their root must persist.
    report = Stage(stage="Report", env={"TENSORCRAFT_ROOT": "/var/lib/tensorcraft"})
    records >> train >> report
