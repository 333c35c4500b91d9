{{/* Spark's settings when executors are pods. The driver is the worker (client mode), found by its headless service. */}}
{{- define "syphon.spark.settings" -}}
{{- with .Values.sparkOnKubernetes }}
spark.kubernetes.namespace: {{ $.Release.Namespace }}
spark.kubernetes.container.image: {{ include "syphon.image" $ }}
spark.kubernetes.container.image.pullPolicy: {{ $.Values.image.pullPolicy }}
# Executors belong to the driver's pod, and end with it.
spark.kubernetes.driver.pod.name: ${env:POD_NAME}
spark.kubernetes.executor.podTemplateFile: /etc/syphon/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "syphon.serviceAccountName" $ }}
# Neither is used, and so the worker needs no right to services or volume claims.
spark.kubernetes.driver.service.deleteOnTermination: "false"
spark.kubernetes.driver.ownPersistentVolumeClaim: "false"
spark.kubernetes.driver.reusePersistentVolumeClaim: "false"
spark.driver.host: ${env:SPARK_DRIVER_HOST}
spark.driver.bindAddress: 0.0.0.0
spark.driver.port: "7078"
spark.driver.blockManager.port: "7079"
spark.executor.instances: {{ .executors | quote }}
spark.executor.cores: {{ .cores | quote }}
spark.executor.memory: {{ .memory }}
spark.executor.memoryOverhead: {{ .memoryOverhead }}
# Tasks pass between pods with their connection strings: peers prove that they know the secret, and everything is encrypted.
spark.authenticate: "true"
spark.network.crypto.enabled: "true"
spark.network.crypto.authEngineVersion: "2"
spark.network.crypto.cipher: AES/GCM/NoPadding
spark.network.crypto.saslFallback: "false"
# What an executor writes to its disk is rows of the ledger; it is encrypted as well.
spark.io.encryption.enabled: "true"
{{- end }}
{{- end }}

{{/* The pod template of executors: with the same restrictions as the worker, with the same settings, secrets and ledger. */}}
{{- define "syphon.spark.executor" -}}
apiVersion: v1
kind: Pod
metadata:
  name: executor
  labels: {{- include "syphon.podLabels" (dict "root" . "component" "executor") | nindent 4 }}
  {{- with merge dict .Values.podAnnotations .Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  securityContext: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: executor
      image: {{ include "syphon.image" . }}
      {{- include "syphon.containerSecurity" .Values | nindent 6 }}
      {{- include "syphon.env" (dict "root" . "component" "executor") | nindent 6 }}
      {{- include "syphon.mounts" .Values | nindent 6 }}
  volumes: {{- include "syphon.volumes" (dict "root" .) | nindent 4 }}
  {{- include "syphon.scheduling" (dict "root" . "own" .Values.sparkOnKubernetes) | indent 2 }}
{{- end }}
