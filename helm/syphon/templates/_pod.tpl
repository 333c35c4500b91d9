{{/*
The pod that worker and drain have in common.
Takes: root (the top scope), component (worker | drain | test), restartPolicy, container (what only this one's container has),
and as options own (values that override the worker's), sidecars.
*/}}
{{- define "syphon.pod" -}}
{{- $root := .root -}}
{{- $own := .own | default dict -}}
{{- $resources := $own.resources | default $root.Values.resources -}}
{{- $checked := and $root.Values.check.enabled (ne .component "test") -}}
{{- with $root.Values -}}
serviceAccountName: {{ include "syphon.serviceAccountName" $root }}
# Only Spark on Kubernetes talks to the cluster: it starts executors.
automountServiceAccountToken: {{ and .sparkOnKubernetes.enabled (ne $.component "test") }}
restartPolicy: {{ $.restartPolicy }}
terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
{{- with .imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or .initContainers $checked }}
initContainers:
  {{- with .initContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if $checked }}
  # 69 is an outage and 1 a missing queue: the worker starts and waits for both. 77 and 78 need a person.
  # A worker that creates no queues needs no Manage claim, so the check asks for none.
  - name: check
    image: {{ include "syphon.image" $root }}
    imagePullPolicy: {{ .image.pullPolicy }}
    command:
      - sh
      - -c
      - |
        {{ include "syphon.check" $ }}
        code=$?
        case $code in 0 | 1 | 69) exit 0 ;; *) exit $code ;; esac
    {{- include "syphon.containerSecurity" . | nindent 4 }}
    resources: {{- toYaml $resources | nindent 6 }}
    {{- include "syphon.env" $ | nindent 4 }}
    {{- include "syphon.mounts" . | nindent 4 }}
  {{- end }}
{{- end }}
containers:
  - name: syphon
    image: {{ include "syphon.image" $root }}
    imagePullPolicy: {{ .image.pullPolicy }}
    {{- toYaml $.container | nindent 4 }}
    workingDir: /var/lib/syphon
    {{- include "syphon.containerSecurity" . | nindent 4 }}
    resources: {{- toYaml $resources | nindent 6 }}
    {{- include "syphon.env" $ | nindent 4 }}
    {{- include "syphon.mounts" . | nindent 4 }}
  {{- with $.sidecars }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes: {{- include "syphon.volumes" (dict "root" $root "scratch" (eq $.component "test")) | nindent 2 }}
{{- include "syphon.scheduling" (dict "root" $root "own" $own) }}
{{- end }}
{{- end }}

{{/* Where a pod runs: by its own values, else by the worker's. Takes: root, own. */}}
{{- define "syphon.scheduling" -}}
{{- range $key := list "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" "priorityClassName" }}
{{- with get $.own $key | default (get $.root.Values $key) }}
{{ dict $key . | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{- define "syphon.check" -}}
syphon check -c /etc/syphon/config.yaml
{{- if or (eq .component "drain") (has "--no-provision" .root.Values.extraArgs) }} --no-provision{{ end }}
{{- end }}

{{/* Labels and annotations of a pod. A change of its settings makes another pod. Takes: root, component. */}}
{{- define "syphon.podMetadata" -}}
labels: {{- include "syphon.podLabels" . | nindent 2 }}
annotations:
  checksum/config: {{ include (print .root.Template.BasePath "/configmap.yaml") .root | sha256sum }}
  {{- with merge dict .root.Values.podAnnotations .root.Values.commonAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "syphon.podLabels" -}}
{{ include "syphon.selectorLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- if .root.Values.workloadIdentity.clientId }}
azure.workload.identity/use: "true"
{{- end }}
{{- with merge dict .root.Values.podLabels .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "syphon.containerSecurity" -}}
{{- with .securityContext -}}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "syphon.env" -}}
{{- $values := .root.Values -}}
{{- $driver := and $values.sparkOnKubernetes.enabled (ne .component "executor") -}}
{{- if or $driver $values.extraEnv -}}
env:
  {{- if $driver }}
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: SPARK_DRIVER_HOST
    value: {{ include "syphon.fullname" .root }}-{{ .component }}-driver.{{ .root.Release.Namespace }}.svc
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with $values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "syphon.mounts" -}}
volumeMounts:
  # A single file, so that the folder of secrets can stand beside it. It never changes in a running pod.
  - name: config
    mountPath: /etc/syphon/config.yaml
    subPath: config.yaml
    readOnly: true
  {{- if .sparkOnKubernetes.enabled }}
  - name: config
    mountPath: /etc/syphon/executor.yaml
    subPath: executor.yaml
    readOnly: true
  {{- end }}
  {{- if .existingSecret }}
  - name: secrets
    mountPath: /etc/syphon/secrets
    readOnly: true
  {{- end }}
  - name: state
    mountPath: /var/lib/syphon
  - name: tmp
    mountPath: /tmp
  {{- with .extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Takes: root, and scratch: without the claim, which may be in use on another node. */}}
{{- define "syphon.volumes" -}}
{{- $name := include "syphon.fullname" .root -}}
{{- with .root.Values -}}
- name: config
  configMap:
    name: {{ $name }}
{{- with .existingSecret }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
- name: state
  {{- if and .persistence.enabled (not $.scratch) }}
  persistentVolumeClaim:
    claimName: {{ .persistence.existingClaim | default $name }}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
