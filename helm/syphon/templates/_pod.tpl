{{/*
The pod that worker and drain have in common.
Takes: root (the top scope), component (worker | drain), restartPolicy, container (what only this one's container has).
*/}}
{{- define "syphon.pod" -}}
{{- $root := .root -}}
{{- with $root.Values -}}
serviceAccountName: {{ include "syphon.serviceAccountName" $root }}
# Only Spark on Kubernetes talks to the cluster: it starts executors.
automountServiceAccountToken: {{ .sparkOnKubernetes.enabled }}
restartPolicy: {{ $.restartPolicy }}
terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
{{- with .imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext: {{- include "syphon.podSecurity" $root | nindent 2 }}
{{- if .check.enabled }}
initContainers:
  # 69 is an outage and 1 a missing queue: the worker starts and waits for both. 77 and 78 need a person.
  # A worker that creates no queues needs no Manage claim, so the check asks for none.
  - name: check
    image: {{ include "syphon.image" $root }}
    imagePullPolicy: {{ .image.pullPolicy }}
    command:
      - sh
      - -c
      - |
        syphon check -c /etc/syphon/config.yaml
        {{- if or (eq $.component "drain") (has "--no-provision" .extraArgs) }} --no-provision{{ end }}
        code=$?
        case $code in 0 | 1 | 69) exit 0 ;; *) exit $code ;; esac
    {{- include "syphon.container" . | nindent 4 }}
    {{- include "syphon.env" $ | nindent 4 }}
    {{- include "syphon.mounts" . | nindent 4 }}
{{- end }}
containers:
  - name: syphon
    image: {{ include "syphon.image" $root }}
    imagePullPolicy: {{ .image.pullPolicy }}
    {{- toYaml $.container | nindent 4 }}
    workingDir: /var/lib/syphon
    {{- include "syphon.container" . | nindent 4 }}
    {{- include "syphon.env" $ | nindent 4 }}
    {{- include "syphon.mounts" . | nindent 4 }}
volumes: {{- include "syphon.volumes" $root | nindent 2 }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "syphon.podLabels" -}}
{{ include "syphon.selectorLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- if .root.Values.workloadIdentity.clientId }}
azure.workload.identity/use: "true"
{{- end }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "syphon.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "syphon.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "syphon.container" -}}
{{ include "syphon.containerSecurity" . }}
resources: {{- toYaml .resources | nindent 2 }}
{{- end }}

{{- define "syphon.env" -}}
{{- $values := .root.Values -}}
{{- if or $values.sparkOnKubernetes.enabled $values.extraEnv -}}
env:
  {{- if $values.sparkOnKubernetes.enabled }}
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
{{- end -}}
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
{{- end }}

{{- define "syphon.volumes" -}}
- name: config
  configMap:
    name: {{ include "syphon.fullname" . }}
{{- with .Values.existingSecret }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
- name: state
  {{- if .Values.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim | default (include "syphon.fullname" .) }}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- end }}
