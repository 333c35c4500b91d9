{{/*
The name of all objects of a release. 48 characters leave room for endings such as -worker-driver. A release's name may begin
with a digit and have dots; the name of a Service may not.
*/}}
{{- define "syphon.fullname" -}}
{{- $default := ternary .Release.Name (printf "%s-syphon" .Release.Name) (contains "syphon" .Release.Name) | replace "." "-" -}}
{{- if regexMatch "^[0-9]" $default -}}{{- $default = printf "syphon-%s" .Release.Name | replace "." "-" -}}{{- end -}}
{{- .Values.fullnameOverride | default $default | trunc 48 | trimSuffix "-" -}}
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

{{/* Labels and annotations of an object. Takes: root, and as options component, labels, annotations. */}}
{{- define "syphon.metadata" -}}
labels:
  {{- include "syphon.selectorLabels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
  {{- with merge dict (.labels | default dict) .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge dict (.annotations | default dict) .root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
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

{{/* The largest and the smallest number of workers at a time, as text. */}}
{{- define "syphon.mostWorkers" -}}
{{- ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled -}}
{{- end }}
{{- define "syphon.fewestWorkers" -}}
{{- ternary .Values.autoscaling.minReplicas .Values.replicaCount .Values.autoscaling.enabled -}}
{{- end }}
