"""``--mgmt_address``: what a command and its configuration ask of an appliance."""

from __future__ import annotations

from collections.abc import Sequence

from waferstream.cli.arguments import SubmitRequest
from waferstream.config.params import Params
from waferstream.management.client.submitting import SWITCHES, without
from waferstream.management.manager.commands import OF_CLIENT
from waferstream.management.model.job import PRIORITIES
from waferstream.management.model.workflow import Submission


def submission_of(
    words: Sequence[str], phases: Sequence[Params], request: SubmitRequest
) -> Submission:
    """Return what a command and its configuration ask for."""
    jobs = [params.trainer.init.backend.cluster_config for params in phases]
    job = jobs[0]
    return Submission(
        words=without(words, OF_CLIENT, SWITCHES),
        num_csx=max(each.num_csx for each in jobs),
        min_num_csx=request.min_num_csx,
        session=request.session,
        is_detached=request.detaches,
        priority=PRIORITIES[job.job_priority],
        labels=job.job_labels,
        limit_s=job.job_time_sec,
        notifications=job.notifications,
    )
