#!/bin/bash
# Run one training over the hosts of a Slurm allocation, in the folder of the repository:
#
#   sbatch deploy/slurm.sh --params params.yaml --num_csx=12 --model_dir /shared/default
#
# The folder, its .venv (pip install --editable '.[cluster]' --editable ./modelzoo --editable ./waferstream_compat), model_dir
# and the home folder, which has Ray's token, are on storage that all hosts see. The same command resumes from the newest checkpoint.

#SBATCH --job-name=waferstream
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --signal=B:TERM@120   # before the time limit: the run writes a checkpoint and ends

set -o errexit -o nounset -o pipefail

port=6379
seconds_to_join=300

source .venv/bin/activate
export RAY_AUTH_MODE=token RAY_worker_niceness=0
[ -s ~/.ray/auth_token ] || (umask 077; ray get-auth-token --generate > /dev/null)  # else all users can read it

# The last host is asked for the address of the first one, which may know itself as 127.0.1.1.
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head_address=$(srun --nodes=1 --ntasks=1 --nodelist="${hosts[-1]}" getent ahostsv4 "${hosts[0]}" \
    | awk 'NR == 1 { print $1 }')

# Ray lives as long as this script, which runs on the first host. A step keeps it on the others until SIGTERM.
trap 'scancel --quiet --signal=TERM "$SLURM_JOB_ID" || true; wait; ray stop --force > /dev/null' EXIT
head_log="ray-$SLURM_JOB_ID-${hosts[0]}.log"
ray start --head --node-ip-address="$head_address" --port="$port" > "$head_log" 2>&1 \
    || { cat "$head_log"; exit 1; }
if [ "$SLURM_NNODES" -gt 1 ]; then
    srun --nodes="$((SLURM_NNODES - 1))" --ntasks="$((SLURM_NNODES - 1))" --relative=1 \
        --output="ray-%j-%N.log" ray start --address="$head_address:$port" --block &
fi
timeout --signal=KILL "$seconds_to_join" python -c '
import sys, time, ray
ray.init(address="auto", log_to_driver=False)
while len(ray.nodes()) < int(sys.argv[1]):
    time.sleep(1)
' "$SLURM_NNODES" || {
    echo "All $SLURM_NNODES hosts must join Ray within $seconds_to_join s; ray-$SLURM_JOB_ID-*.log tell what they wait for" >&2
    exit 1
}

# The shell passes SIGTERM on, and waits again until the run has ended.
python run.py --cluster deploy/cluster.yaml "$@" &
run=$!
trap 'kill -TERM "$run"' TERM
code=0
wait "$run" || code=$?
while kill -0 "$run" 2> /dev/null; do
    code=0
    wait "$run" || code=$?
done
exit "$code"
