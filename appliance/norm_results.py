"""Results of a step that the coordinator computes from norms of the weight servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from wsc.core.installation import Installation
from wsc.core.program import Mode, NormInput, Program
from wsc.core.role import Report, Value

Norms = Mapping[NormInput, float]


class NormKernels:
    """The kernels of installed programs that compute results from norms."""

    def __init__(self) -> None:
        self._kernels: dict[Mode, Callable[..., tuple[Any, ...]]] = {}

    def install(self, installation: Installation) -> None:
        """Build the kernel of a program, if it has one."""
        if installation.norms is not None:
            self._kernels[installation.mode] = installation.norms.build()

    def gathered(self, reports: Iterable[Report]) -> Mapping[int, Norms]:
        """Return the norms of each step from the reports of all servers."""
        found: defaultdict[int, dict[NormInput, float]] = defaultdict(dict)
        for report in reports:
            for step, norms in report.step_norms.items():
                found[step] |= norms
        return found

    def results(self, program: Program, norms: Norms) -> dict[int, Value]:
        """Return the results of a step that are computed from norms, by position."""
        wanted = program.norms
        if not wanted.results:
            return {}
        inputs = (torch.tensor(norms[norm], dtype=torch.float32) for norm in wanted.inputs)
        outputs = self._kernels[program.mode](*inputs)
        values = (value if value.ndim else float(value) for value in outputs)
        return dict(zip(wanted.results, values, strict=True))
