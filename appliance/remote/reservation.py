"""A cluster that a management lends to one program: submitted, awaited, used, and given back.

The management launches a server of clusters as it launches any command. The server writes the right
to use it into the folder of its workflow, which the management shows to the user of that workflow.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from appliance.plan import ClusterPlan
from appliance.remote.access import Access
from appliance.remote.cluster import RemoteCluster, start_remote
from waferstream.core.errors import ClusterJobCancelledByCsctl, ClusterJobInitError
from waferstream.management.client.following import BEAT_S, repeating
from waferstream.management.client.package import pack
from waferstream.management.client.remote import RemoteClient
from waferstream.management.client.site import Address, connect
from waferstream.management.manager.commands import ATTACHED, CREDENTIALS
from waferstream.management.model.job import Phase, new_workflow_name
from waferstream.management.model.operations import Beat, Cancel, ListFiles, ReadWorkflow, Submit
from waferstream.management.model.workflow import Submission, Workflow

log = logging.getLogger("waferstream")

POLL_S = 0.5
"""Between two looks at the queue."""


def start_reserved(address: Address, submission: Submission, plan: ClusterPlan) -> RemoteCluster:
    """Let a management launch a cluster, and start a plan there; with its end all is given back.

    Args:
        address: The management.
        submission: What the program asks for, without a command.
        plan: The cluster.

    Raises:
        ClusterJobCancelledByCsctl: The workflow was cancelled while it waited.
        ClusterJobInitError: The server has not come up.
        ApplianceServiceInterrupted: The management does not answer.
    """
    host = address.address.rpartition(":")[0]
    words = (*ATTACHED, "--host", host)
    with ExitStack() as stack:
        client = connect(address)
        stack.callback(client.close)
        package = _package(client, plan)
        asked = submission.model_copy(
            update={"words": words, "package": package, "is_service": True}
        )
        name = client.do(Submit(name=new_workflow_name(), submission=asked)).name
        log.info("The management knows this program as %s", name)
        stack.enter_context(repeating(BEAT_S, lambda: client.do(Beat(name=name))))
        with _cancelled_on_failure(client, name):
            access = _access(client, _running(client, name))
            cluster = start_remote(access, plan, stack.close)
        stack.pop_all()
    return cluster


def _package(client: RemoteClient, plan: ClusterPlan) -> str:
    """Send the working directory of the server, which has its machine alone; return the digest."""
    with tempfile.TemporaryDirectory() as folder:
        work, package = Path(folder) / "work", Path(folder) / "package.zip"
        work.mkdir()
        machine = plan.spec.model_dump(mode="json", exclude_unset=True)
        (work / "cluster.yaml").write_text(yaml.safe_dump(machine))
        pack(work, package)
        return client.upload(package)


@contextmanager
def _cancelled_on_failure(client: RemoteClient, name: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        client.do(Cancel(name=name))
        raise


def _running(client: RemoteClient, name: str) -> Workflow:
    """Wait in the queue until the server has written who may use it; log why that takes time."""
    reason = ""
    while True:
        workflow = client.do(ReadWorkflow(name=name))
        if workflow.result is Phase.CANCELLED:
            raise ClusterJobCancelledByCsctl(
                "the job was cancelled", code="job-cancelled", where=name
            )
        if workflow.result is not None:
            raise ClusterJobInitError(
                "the appliance has launched no cluster",
                code="cluster-not-launched",
                where=name,
                value=workflow.reason,
                remedy=f"waferstream ctl log-export {name}",
            )
        if any(entry.path == CREDENTIALS for entry in client.do(ListFiles(name=name))):
            return workflow
        if workflow.placement is None and workflow.reason != reason:
            reason = workflow.reason
            log.info("Waiting in the queue: %s", reason)
        time.sleep(POLL_S)


def _access(client: RemoteClient, workflow: Workflow) -> Access:
    content = b"".join(client.download(workflow.name, CREDENTIALS))
    return Access.model_validate_json(content)
