#!/bin/sh
# Builds engines that are broken on purpose (see the features of txfs-engine) and demands that the simulator catches
# each of them within seconds.
set -eu
cd "$(dirname "$0")/.."
exec "${CARGO:-cargo}" run --profile simulation --locked -p txfs-sim -- broken --seconds 60 "$@"
