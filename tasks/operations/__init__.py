"""Operations: runs nobody watches, beside the data's way: nothing here can change an artefact of a stage.

    supervise.py        runs Luigi in a process of its own, sees how it ends, and has the rest done
    on_failure.py       reports a run whose supervisor was killed as well
    incidents.py        what failed, what of it is pending for whom, what works again; plain data in and out
    state_file.py       where that is remembered, also on a full disk
    notify.py           the channels, and what each is due
    messages.py         what a message says
    webhook.py          a message → an HTTP webhook
    redaction.py        what must not leave this machine in a message
    dated_reports.py    copies of the report, one for each date
    unreached.py        the artefacts that the present settings do not reach
    limits.py           which runs and dated reports may go
    retention.py        removes them
    monitoring.py       the last run in figures, for Prometheus

They may ask the tasks; of the tasks only Nightly asks them.
"""
