#!/bin/sh
# An outage on the local Service Bus: contoso refuses, the application sends COUNT orders all the same, contoso is back.
#
#     sh examples/outage.sh COUNT
#
# PYTHON is the interpreter that has syphon.
set -e
control=http://127.0.0.1:5300/\$emulator/outage
curl -s -S -o /dev/null -X PUT "$control" -d '{"kind": "refuse"}' --retry 10 --retry-connrefused
trap 'curl -s -S -o /dev/null -X DELETE "$control"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"${PYTHON:-.venv/bin/python}" "$(dirname "$0")/orders_paired.py" "$1"
