"""Find out within seconds whether Ray listens at an address."""

from __future__ import annotations

from ray._private import services
from ray._private.authentication.authentication_token_setup import (
    maybe_enable_token_auth_if_token_available,
)
from ray._raylet import (  # type: ignore[attr-defined]  # its stub leaves both out
    GRPC_STATUS_CODE_UNIMPLEMENTED,
    InnerGcsClient,
)
from ray.exceptions import RpcError

from appliance.ray.connection.greeting import (
    NOT_RAY,
    START_ONE,
    greet,
    host_and_port,
    not_answering,
)
from waferstream.core.errors import ClusterJobInitError

_SILENT_S = 30.0  # of the head of a joined cluster that a run needs
_ANSWER_S = 15.0  # a busy head greets at once, but may take a while to answer a call


def check_address(address: str) -> None:
    """Check that Ray listens at an address; ray.init alone would retry for minutes."""
    where = _latest_instance() if address == "auto" else address
    host, port = host_and_port(where)
    try:
        greet(host, port)
        if address != "auto":
            # ray.init looks for a token in the same way, but only after this request.
            maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
            _ask(where)
    except (OSError, OverflowError) as error:
        raise not_answering(address, where, error) from error


def _latest_instance() -> str:
    """Return the address that ``ray.init`` would choose for ``auto``.

    It looks at RAY_ADDRESS, at running processes and at the file that `ray start` wrote, which
    survives an instance that was killed.
    """
    try:
        found: str = services.get_ray_address_from_environment("auto", temp_dir=None)
    except ConnectionError as error:
        raise ClusterJobInitError(
            "no Ray cluster runs on this host",
            code="ray-not-running",
            where="runtime.address: auto",
            remedy=START_ONE,
        ) from error
    return found


def _ask(where: str) -> None:
    """Request the cluster's id once; ray.init does so up to twenty times.

    Raises:
        ConnectionError: The server does not know the request, so it is not a head of Ray.
        RayError: The server refuses to answer, or does not answer in time.
    """
    try:
        InnerGcsClient.standalone(where, None, round(_ANSWER_S * 1000))
    except RpcError as error:
        if error.rpc_code == GRPC_STATUS_CODE_UNIMPLEMENTED:
            raise ConnectionError(NOT_RAY) from error
        raise


def answers(address: str) -> bool:
    """Return whether a gRPC server answers there; one that is stopped only seems to listen."""
    host, _, port = address.rpartition(":")
    try:
        greet(host, int(port), _SILENT_S)
    except (ConnectionError, TimeoutError):
        return False
    except OSError:
        return True
    return True
