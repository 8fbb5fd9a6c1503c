#!/bin/bash
# One model on the GPUs of several hosts, under Slurm:
#   sbatch --nodes 2 --gpus-per-node 4 deploy/slurm.sh /models/model.gguf --api-key-file ~/keys.txt
# Each GPU gets a rank of the model, a task of its own. With STAGES=2, the hosts are two stages of a pipeline, and each
# layer is on half of the GPUs. Rank 0, on the first host, listens on port 8080. The words after the
# script are those of `ingot serve`. If a rank fails, the job is put into the queue again.
#SBATCH --job-name=ingot
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#SBATCH --requeue
#SBATCH --output=ingot-%j.log
set -uo pipefail

if [ $# -eq 0 ]; then
  echo "usage: sbatch [--nodes N] [--gpus-per-node N] deploy/slurm.sh MODEL [flags of ingot serve]" >&2
  exit 2
fi

gpus=${SLURM_GPUS_ON_NODE:?start this script with sbatch}
ranks=$((SLURM_JOB_NUM_NODES * gpus))
stages=${STAGES:-1}
echo "slurm.sh: $ranks ranks; http://$SLURMD_NODENAME:8080"
srun --mpi=pmix --kill-on-bad-exit=1 --ntasks="$ranks" --ntasks-per-node="$gpus" --gpu-bind=none \
  ingot serve --tp "$((ranks / stages))" --pp "$stages" --device cuda --host 0.0.0.0 --port 8080 "$@"
code=$?

# 70: an engine ended, 71: a GPU or a rank failed, 72: steps did not end, 137: a process was killed. What a new start
# cannot mend, such as a wrong flag (2) or a model that does not fit (1), is not tried again.
case $code in
  70 | 71 | 72 | 137) scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit $code
