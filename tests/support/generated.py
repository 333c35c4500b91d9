"""Generated files: the chart's schema of settings, golden renders, tables of metrics and options.

`make generated` (python -m tests.support.generated) writes them; tests compare. Read the difference before you
commit it: a changed golden render changes what operators install.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from syphon.cli.drain import drain
from syphon.config import Config, config_schema
from syphon.option_declarations import options_of
from syphon.status.metric_names import CONVENTIONAL, OWN, TRACED_STEPS, Metric
from syphon.status.snapshot import WorkerStatus
from syphon.worker import DrainOptions
from tests.support.chart import CASES, CHART, GOLDEN, rendered
from tests.support.kubernetes_schema import kubernetes_definitions
from tests.support.tools import ROOT

# --- the chart's schema of settings ----------------------------------------------------------------------------------

REFERENCE = {
    "type": "string",
    "if": {"not": {"pattern": r"^\$\{(file|env):[^}]+\}$"}},
    "then": {"const": "${file:secrets/KEY}"},
}
"""The only form of a secret in values. With a plain pattern helm would print a value that does not match."""

LOOKS_SECRET = {"type": "string", "pattern": "(SharedAccessKey|SharedAccessSignature|AccountKey)="}

SPARK_SETTINGS = {
    "type": "object",
    "propertyNames": {"pattern": r"^spark\."},
    "patternProperties": {
        "(key|Key|KEY|secret|Secret|SECRET|password|Password|PASSWORD|token|Token|TOKEN|sig|sas)(\\.|$)": REFERENCE
    },
    "additionalProperties": {"type": ["string", "number", "boolean"], "not": LOOKS_SECRET},
}


def settings_schema() -> dict[str, Any]:
    """The schema of the worker's settings in the chart: without secrets, and without settings that the pod decides."""
    schema: dict[str, Any] = _plain(Config.model_json_schema(ref_template="#/definitions/{model}"))
    # The chart says in words of its own that a pair is missing, and `helm lint` is content without one.
    del schema["required"], schema["properties"]["pairs"]["minItems"]
    for decided in ("listen", "token"):
        del schema["$defs"]["StatusSettings"]["properties"][decided]
    schema["$defs"]["PipelineSettings"]["properties"]["spark"] = SPARK_SETTINGS
    return schema


def _plain(schema: Any) -> Any:
    """The schema without its descriptions, and with a reference in place of each secret."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "password":
        return REFERENCE
    words = [key for key in ("title", "description", "default") if not isinstance(schema.get(key), dict)]
    return {key: _plain(value) for key, value in schema.items() if key not in words}


SECRET_VARIABLES = "(SECRET|PASSWORD|TOKEN|KEY|CREDENTIALS?|CONNECTION_?STRING|SIGNATURE|secret|password|token|key)$"
ENVIRONMENT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.-]*$"},
        "value": {"type": "string", "not": LOOKS_SECRET},
        "valueFrom": {"$ref": "#/definitions/io.k8s.api.core.v1.EnvVarSource"},
    },
    "required": ["name"],
    "if": {"properties": {"name": {"pattern": SECRET_VARIABLES}}},
    "then": {"required": ["valueFrom"], "properties": {"value": False}},
}
"""A variable of any container: a secret comes by `valueFrom`, as the names and values of variables show."""

OWN_LABELS = [
    *(f"app.kubernetes.io/{name}" for name in ("name", "instance", "component", "version", "managed-by")),
    "helm.sh/chart",
    "azure.workload.identity/use",
]
LABELS = {
    "type": "object",
    "propertyNames": {"not": {"enum": OWN_LABELS}},
    "additionalProperties": {"type": "string"},
}
"""Labels by the operator. Those of the chart select pods: with another value nothing would find them."""

ANNOTATIONS = {"type": "object", "additionalProperties": {"type": "string"}}


def values_schema() -> str:
    """values.schema.json: written by hand, except for `config` and the definitions. Each of these has a line."""
    whole = json.loads((CHART / "values.schema.json").read_text())
    del whole["definitions"]
    settings = settings_schema()
    definitions = {"labels": LABELS, "annotations": ANNOTATIONS, **settings.pop("$defs"), **kubernetes_definitions()}
    definitions["io.k8s.api.core.v1.EnvVar"] = ENVIRONMENT
    whole["properties"]["config"] = settings
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(schema)}" for name, schema in definitions.items())
    by_hand = json.dumps(whole, indent=2).removesuffix("\n}")
    return f'{by_hand},\n  "definitions": {{\n{lines}\n  }}\n}}\n'


# --- metrics ---------------------------------------------------------------------------------------------------------


def metrics_table(metrics: tuple[Metric, ...]) -> str:
    rows = ["| Prometheus | OpenTelemetry | kind | labels | |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.prometheus_labels)
        rows.append(f"| `{metric.prometheus}` | `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(rows)


def spans_table() -> str:
    rows = ["| span | kind | |", "|---|---|---|"]
    rows += [f"| `{step.operation} …` | {step.kind} | {step.help} |" for step in TRACED_STEPS]
    return "\n".join(rows)


# --- options ---------------------------------------------------------------------------------------------------------


def options_table(command: click.Command, model: type) -> str:
    """What the declarations of a command's options add to its --help."""
    details = {option.name: option.details for option in options_of(model)}
    rows = ["| option | what `--help` does not say |", "|---|---|"]
    for option in (found for found in command.params if isinstance(found, click.Option)):
        shown, _ = option.get_help_record(click.Context(command)) or ("", "")
        if added := details.get(str(option.name)):
            rows.append("| `{}` | {}. |".format(shown.replace("|", r"\|"), added))
    return "\n".join(rows)


# --- the files -------------------------------------------------------------------------------------------------------


def with_table(page: str, name: str, table: str) -> str:
    """A page with a new table between its two marks."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)", re.DOTALL)
    page, count = marks.subn(lambda found: found[1] + table + found[2], page)
    assert count == 1, f"no place for the table of {name}"
    return page


def metrics_page() -> str:
    page = with_table((ROOT / "docs" / "metrics.md").read_text(), "own metrics", metrics_table(OWN))
    page = with_table(page, "conventional metrics", metrics_table(CONVENTIONAL))
    return with_table(page, "spans", spans_table())


def commands_page() -> str:
    page = (ROOT / "docs" / "commands.md").read_text()
    return with_table(page, "drain options", options_table(drain, DrainOptions))


def status_schema() -> str:
    """The contract of /status as a JSON schema."""
    return json.dumps(WorkerStatus.model_json_schema(mode="serialization"), indent=2) + "\n"


def config_schema_file() -> str:
    """The schema of config.yaml, as `syphon config-schema` prints it."""
    return json.dumps(config_schema(), indent=2) + "\n"


FILES: dict[Path, Callable[[], str]] = {
    CHART / "values.schema.json": values_schema,
    ROOT / "docs" / "commands.md": commands_page,
    ROOT / "docs" / "metrics.md": metrics_page,
    ROOT / "docs" / "status.schema.json": status_schema,
    ROOT / "docs" / "config.schema.json": config_schema_file,
    **{GOLDEN / f"{case}.yaml": partial(rendered, case) for case in CASES},
}

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for file, made in FILES.items():
        file.write_text(made())
