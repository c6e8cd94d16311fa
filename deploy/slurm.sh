#!/bin/bash
# Run one training over the hosts of a Slurm allocation, in the folder of the repository:
#
#   sbatch deploy/slurm.sh --params params.yaml --num_csx=12 --model_dir /shared/default
#
# The folder, its .venv (pip install --editable '.[cluster]') and model_dir are on storage that all hosts see.
# The same command resumes from the newest checkpoint.

#SBATCH --job-name=waferstream
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive

set -o errexit -o nounset -o pipefail

source .venv/bin/activate
export RAY_AUTH_MODE=token
[ -s ~/.ray/auth_token ] || ray get-auth-token --generate > /dev/null

head_host=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head --lines=1)
head_address=$(getent hosts "$head_host" | awk '{ print $1; exit }')

# Starts Ray on every host, runs the command on the first one, and stops Ray when it has ended.
srun ray symmetric-run --address "$head_address:6379" --min-nodes "$SLURM_NNODES" \
    -- python run.py --cluster deploy/cluster.yaml "$@"
