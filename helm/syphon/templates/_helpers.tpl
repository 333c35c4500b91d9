{{/* The name of all objects of a release. 50 characters leave room for endings such as -drain-driver. */}}
{{- define "syphon.fullname" -}}
{{- $default := ternary .Release.Name (printf "%s-syphon" .Release.Name) (contains "syphon" .Release.Name) -}}
{{- .Values.fullnameOverride | default $default | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "syphon.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "syphon.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{- define "syphon.selectorLabels" -}}
app.kubernetes.io/name: syphon
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "syphon.labels" -}}
{{ include "syphon.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "syphon.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* config.yaml: the operator's settings, and those that a pod needs. The operator's settings override. */}}
{{- define "syphon.config" -}}
{{- $_ := required "config.pairs is missing: say which namespaces form a pair, as config.example.yaml shows" .Values.config.pairs -}}
{{- $status := dict "listen" "0.0.0.0:8080" -}}
{{- with .Values.status.tokenKey }}{{ $_ := set $status "token" (printf "${file:secrets/%s}" .) }}{{ end -}}
{{- $pod := dict "status" $status -}}
{{- if .Values.sparkOnKubernetes.enabled -}}
{{- $spark := include "syphon.spark.settings" . | fromYaml -}}
{{- $_ := set $pod "pipeline" (dict "master" .Values.sparkOnKubernetes.master "spark" $spark) -}}
{{- end -}}
{{- mergeOverwrite $pod (deepCopy .Values.config) | toYaml -}}
{{- end }}

{{/* Refuses values that are valid one by one, but not together. */}}
{{- define "syphon.validate" -}}
{{- $ledger := dig "pipeline" "ledger" "./ledger" .Values.config -}}
{{- if and .Values.status.tokenKey (not .Values.existingSecret) -}}
{{- fail "status.tokenKey names a key of existingSecret, which is empty" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.status.tokenKey) -}}
{{- fail "serviceMonitor needs status.tokenKey: /metrics answers only requests with the token" -}}
{{- end -}}
{{- if .Values.sparkOnKubernetes.enabled -}}
{{- if gt (int .Values.replicaCount) 1 -}}
{{- fail "sparkOnKubernetes works with one worker: set replicaCount to 1 (or 0), and raise executors instead" -}}
{{- end -}}
{{- if not (or (contains "://" $ledger) .Values.persistence.enabled) -}}
{{- fail "sparkOnKubernetes needs a ledger that all pods reach: give config.pipeline.ledger a URL, or enable persistence" -}}
{{- end -}}
{{- end -}}
{{- end }}
