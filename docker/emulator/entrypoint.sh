#!/bin/sh
# Starts the emulator as Microsoft's image starts its own: the same ports, the same place for Config.json, the same last line.
# Arguments are options of `syphon emulator`. A container has addresses of its own, so it listens on all of them.
set -eu
exec syphon emulator --host 0.0.0.0 --config "${CONFIG_PATH:-/ServiceBus_Emulator/ConfigFiles/Config.json}" \
    --ready-line "Emulator Service is Successfully Up!" "$@"
