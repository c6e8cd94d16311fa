"""A user's process that runs a job until it is ended: ``python ray_driver.py <session>``."""

import sys

from toy_roles import FOREVER, Play, Umpire, players

from appliance.ray.coordinator import RayHosted
from appliance.spec import RuntimeSpec

if __name__ == "__main__":
    hosted = RayHosted(Umpire, players(), RuntimeSpec(), sys.argv[1])
    try:
        print("ready", flush=True)
        hosted.do(Play(FOREVER))
    except KeyboardInterrupt:
        pass
    finally:
        hosted.shutdown()
    print("ended", flush=True)
