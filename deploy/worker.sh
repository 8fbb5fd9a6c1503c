#!/bin/sh
# A pod of a LeaderWorkerSet that is not the first: mpirun of the first pod starts ranks here, over ssh. sshd runs as the
# user of the image, and takes only the key in /ssh.
set -eu
exec /usr/sbin/sshd -D -e -p 2222 -h /ssh/host -o AuthorizedKeysFile=/ssh/authorized_keys -o PasswordAuthentication=no \
  -o StrictModes=no -o UsePAM=no -o PidFile=none
