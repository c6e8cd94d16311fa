"""The appliance in a notebook: a cell whose program trains on a cluster, with its loss live below.

    %load_ext waferstream.notebook

    %%waferstream --num_csx 192 --mgmt_address 10.0.0.5:8478
    backend = cstorch.backend("CSX")
    ...

Needs the extra ``notebook``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the cell magic: IPython calls this for ``%load_ext``."""
    from waferstream.notebook.magic import cell_magic_of  # noqa: PLC0415  (IPython is an extra)

    magic = cell_magic_of(shell)
    shell.register_magic_function(magic, "cell", "waferstream")  # type: ignore[arg-type]
