"""A user's program on one of several hosts: ``python hosts_driver.py <JSON>``, see ``Order``.

The last line that it prints is the SHA-256 of the weights.
"""

import sys
from pathlib import Path
from unittest.mock import patch

import cstorch
from appliance.spec import AutoRestart, ClusterSpec, RuntimeSpec
from tests.support.runs import tiny_training
from waferstream.core.config import Config


class Order(Config):
    """What to train, and where."""

    runtime: RuntimeSpec
    num_csx: int = 4
    servers: int = 1
    steps: int = 3
    save: Path | None = None
    save_every: int | None = None
    restore: Path | None = None
    restarts: int = 0

    def train(self) -> str:
        """Train and return the digest of the weights."""
        config = cstorch.ClusterConfig(
            num_csx=self.num_csx,
            max_wgt_servers=self.servers,
            cluster=ClusterSpec(runtime=self.runtime),
            autorestart=AutoRestart(max_num_restarts=self.restarts) if self.restarts else None,
        )
        with patch.object(tiny_training, "cluster_config", lambda _: config):
            digest = tiny_training.train_on_cluster(
                tiny_training.init_config(),
                tiny_training.Shape(),
                self.steps,
                save=self.save,
                save_every=self.save_every,
                restore=self.restore,
            )
        return str(digest)


if __name__ == "__main__":
    print(Order.model_validate_json(sys.argv[1]).train())
