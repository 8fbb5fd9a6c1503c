#!/bin/sh
# The first pod of a LeaderWorkerSet (deploy/leaderworkerset.yaml): waits until every other pod answers, and starts a rank
# of `ingot serve` for each GPU of all pods. GPUS: of one pod. STAGES: of the pipeline (1), which divides the number of
# GPUs. The words after the script are those of `ingot serve`.
set -eu

name=${LWS_LEADER_ADDRESS%%.*}
domain=${LWS_LEADER_ADDRESS#*.}
hosts=$LWS_LEADER_ADDRESS:$GPUS
i=1
while [ "$i" -lt "$LWS_GROUP_SIZE" ]; do
  host=$name-$i.$domain
  until ssh "$host" true; do sleep 2; done
  hosts=$hosts,$host:$GPUS
  i=$((i + 1))
done
ranks=$((GPUS * LWS_GROUP_SIZE))
stages=${STAGES:-1}
exec mpirun --host "$hosts" -n "$ranks" \
  ingot serve --tp "$((ranks / stages))" --pp "$stages" --device cuda --host 0.0.0.0 "$@"
