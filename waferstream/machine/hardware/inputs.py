"""Input of training data: who loads samples, the time that takes, the link to a system.

Loading is CPU work of input workers, so its time depends on the kind of files and on the number of
processes that share it. The kinds are those of the vendor's public loaders; their constants
are CPU time of that code, one process on an AMD EPYC core (family 25, model 1) with files in
memory, and the shortest of many passes: they leave out what storage and busy hosts add.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import NonNegativeInt, PositiveInt, ValidationInfo, field_validator

from waferstream.core.config import Config
from waferstream.core.program.program import Loading
from waferstream.core.units import PS_PER_US
from waferstream.machine.hardware.sourced import Preset, Sourced, merged, preset, sourced


class LoaderSpec(Config):
    """CPU time of a process that makes samples ready.

    An element is one number of a sample's tensors: three for each token of a GPT model, which has
    inputs, mask and labels.
    """

    sample_ps: NonNegativeInt
    element_ps: NonNegativeInt
    file_ps: NonNegativeInt  # for each sample and each file but one


_NOT_MEASURED = Sourced(0, "assumed", "no time until it is measured")
_FILE_IS_KNOWN = Sourced(0, "assumed", "most readers know in which file a sample is")

PRESETS: Mapping[str, Preset[LoaderSpec]] = {
    "other": preset(
        LoaderSpec,
        "A loader without measurements, such as a user's own",
        sample_ps=_NOT_MEASURED,
        element_ps=_NOT_MEASURED,
        file_ps=_FILE_IS_KNOWN,
    ),
    "hdf5": preset(
        LoaderSpec,
        "Sequences from HDF5 files, each compressed by itself, all files seen as one dataset",
        sample_ps=Sourced(
            22_500_000,
            "derived",
            "measured: map-style and iterable readers of modelzoo R2.3 and R2.5 on 512 to 8,192 "
            "tokens",
        ),
        element_ps=Sourced(13_700, "derived", "as sample_ps; mean error 14 %"),
        file_ps=Sourced(
            720_000,
            "derived",
            "measured: the map-style reader of modelzoo R2.3 with the h5py 3.10 that R2.2 to R2.5 "
            "pin, on 100 to 3,000 files, mean error 6 %; HDF5 1.14 looks through the files of a "
            "virtual dataset at each read, HDF5 2.0 no longer",
        ),
    ),
    "csv": preset(
        LoaderSpec,
        "Words from CSV files, looked up and masked for each read",
        sample_ps=Sourced(
            110 * PS_PER_US,
            "derived",
            "measured: BERT's processor with dynamic masking of modelzoo R2.0 on 64 to 512 tokens",
        ),
        element_ps=Sourced(820_000, "derived", "as sample_ps; mean error 1 %"),
        file_ps=_FILE_IS_KNOWN,
    ),
    "npz": preset(
        LoaderSpec,
        "Images in an autoencoder's space, a file each, with noise drawn for them",
        sample_ps=Sourced(
            450 * PS_PER_US,
            "derived",
            "measured: what modelzoo R2.4 does for DiT, images of 4 x 16 x 16 to 4 x 64 x 64",
        ),
        element_ps=Sourced(12_000, "derived", "as sample_ps; mean error 2 %"),
        file_ps=_FILE_IS_KNOWN,
    ),
    "jpeg": preset(
        LoaderSpec,
        "Photographs from JPEG files, a file each, cut and scaled at random",
        sample_ps=Sourced(
            3_780 * PS_PER_US,
            "derived",
            "measured: Pillow decodes photographs of 500 x 375 pixels and 119 kB, 2.2 ms, and "
            "scales them to 256 x 256, as the vision transformer of modelzoo R2.4 asks",
        ),
        element_ps=Sourced(
            16_500, "derived", "measured: cut, scaled to 224 x 224, flipped, normalised, batched"
        ),
        file_ps=_FILE_IS_KNOWN,
    ),
}


class InputSpec(Config):
    """Input of training data, from input workers to each system."""

    workers_per_system: PositiveInt = sourced(
        1, "assumed", "of a job that leaves it to the cluster; workers take batches in turn"
    )
    hdf5: LoaderSpec = PRESETS["hdf5"].spec
    csv: LoaderSpec = PRESETS["csv"].spec
    npz: LoaderSpec = PRESETS["npz"].spec
    jpeg: LoaderSpec = PRESETS["jpeg"].spec
    other: LoaderSpec = PRESETS["other"].spec
    bandwidth_bytes_per_s: PositiveInt = sourced(
        12_500_000_000, "assumed", "one 100 Gb/s port of an activation server for each system"
    )
    latency_ps: NonNegativeInt = sourced(
        5 * PS_PER_US, "assumed", "from worker to system, as one hop of SwarmX"
    )
    prefetch_batches: PositiveInt = sourced(
        2, "assumed", "micro-batches that a system may hold: one in use, one arriving", le=4096
    )

    @field_validator(*PRESETS, mode="before")
    @classmethod
    def _changes_its_preset(cls, value: object, field: ValidationInfo) -> object:
        if isinstance(value, Mapping) and field.field_name is not None:
            return merged(PRESETS[field.field_name].spec, value)
        return value

    def load_ps(self, loading: Loading, num_samples: int, num_elements: int) -> int:
        """Return the time in which the workers of one system make samples ready, rounded up.

        ``num_elements`` counts those of all samples. Processes share the work evenly, as they do
        over many batches.
        """
        loader: LoaderSpec = getattr(self, loading.kind)
        sample_ps = loader.sample_ps + (loading.num_files - 1) * loader.file_ps
        work_ps = num_samples * sample_ps + num_elements * loader.element_ps
        workers = loading.num_workers_per_csx or self.workers_per_system
        return -(-work_ps // (workers * max(1, loading.num_workers)))
